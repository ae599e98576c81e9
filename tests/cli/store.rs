//! The store that runs fill, seen through its verbs and through skopeo.

use std::fs;

use crate::env::{Env, RECORDED};

#[test]
fn what_runs_record_verifies() {
    let env = Env::recorded();
    let report = env.ixbuild(&["store", "verify", "--json"]).ok().json();
    assert_eq!(
        (&report["attempts"], &report["records"], &report["problems"]),
        (&5.into(), &5.into(), &serde_json::json!([]))
    );
    let path = env.ixbuild(&["store", "path"]).ok();
    assert_eq!(path.out.trim_end(), env.store().display().to_string());
    // One flipped byte of a record is found, named, and exits with 5.
    let mut files = Vec::new();
    crate::env::collect(&env.store(), &env.store(), &mut files);
    let (blob, bytes) =
        files.iter().filter(|(path, _)| path.starts_with("blobs")).max_by_key(|(_, bytes)| bytes.len()).unwrap();
    let mut bytes = bytes.clone();
    bytes[10] ^= 1;
    fs::write(env.store().join(blob), bytes).unwrap();
    let said = env.ixbuild(&["store", "verify"]).ended(5);
    assert!(said.out.contains(&blob.display().to_string()) && said.out.contains("fix: "), "{}", said.out);
}

#[test]
fn skopeo_reads_a_record() {
    let env = Env::recorded();
    if env.command("skopeo").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "CI has no skopeo");
        eprintln!("SKIPPED: there is no skopeo; apt-get install skopeo");
        return;
    }
    let show = env.ixbuild(&["show", RECORDED[4], "--json"]).ok().json();
    let index: serde_json::Value = serde_json::from_slice(&fs::read(env.store().join("index.json")).unwrap()).unwrap();
    let digest = &show["attempts"][0]["manifest"];
    let entry = index["manifests"].as_array().unwrap().iter().find(|entry| entry["digest"] == *digest).unwrap();
    let tag = entry["annotations"]["org.opencontainers.image.ref.name"].as_str().unwrap();
    let image = format!("oci:{}:{tag}", env.store().display());
    let manifest = env.said(env.command("skopeo").args(["inspect", "--raw", &image])).ok().json();
    assert_eq!(manifest["artifactType"], "application/vnd.ixbuild.record.v1+json");
    let job = show["job"].as_str().unwrap().trim_start_matches("job:");
    assert_eq!(manifest["config"]["digest"], format!("sha256:{job}"));
    let copy = env.path("copy");
    env.said(env.command("skopeo").args(["--insecure-policy", "copy", &image, &format!("dir:{}", copy.display())]))
        .ok();
    let spec: serde_json::Value = serde_json::from_slice(&fs::read(copy.join(job)).unwrap()).unwrap();
    assert_eq!(spec, show["spec"]);
    assert_eq!(
        manifest["layers"].as_array().unwrap().len(),
        fs::read_dir(&copy).unwrap().count() - 3,
        "a file a layer"
    );
}
