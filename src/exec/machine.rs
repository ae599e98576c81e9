//! The machine that ixbuild runs on: name, kernel, processor, memory, GPUs. Reads `/proc`, and asks `nvidia-smi` only where
//! the driver shows nothing there.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// A machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Machine {
    /// Host name.
    pub host: String,
    /// Kernel name and release, such as `Linux 6.8.0`.
    pub kernel: String,
    /// Hardware architecture, such as `x86_64`.
    pub architecture: String,
    /// Processor model; none where the kernel does not tell.
    pub cpu: Option<String>,
    /// Logical processors that this process may use.
    pub cores: u64,
    /// Memory, bytes.
    pub memory_bytes: Option<u64>,
    /// Its GPUs; none without a driver.
    pub gpus: Vec<Gpu>,
}

/// A GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Gpu {
    /// Its model, as the driver says.
    pub model: String,
    /// Its UUID.
    pub uuid: Option<String>,
    /// The driver's version.
    pub driver: Option<String>,
}

impl Machine {
    /// This machine, now.
    pub fn this() -> Self {
        let uname = rustix::system::uname();
        let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        Self {
            host: text(uname.nodename()),
            kernel: format!("{} {}", text(uname.sysname()), text(uname.release())),
            architecture: text(uname.machine()),
            cpu: cpu_model(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
            memory_bytes: memory(&fs::read_to_string("/proc/meminfo").unwrap_or_default()),
            gpus: gpus(Path::new("/proc/driver/nvidia")),
        }
    }
}

/// The value of `key: value` or `key : value`, the first of that key.
fn field<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then_some(value.trim())
    })
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    field(cpuinfo, "model name").or_else(|| field(cpuinfo, "Model")).map(str::to_owned)
}

fn memory(meminfo: &str) -> Option<u64> {
    let kib: u64 = field(meminfo, "MemTotal")?.strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The GPUs that the NVIDIA driver shows in its directory of `/proc`, else those that `nvidia-smi` lists, else none.
fn gpus(driver: &Path) -> Vec<Gpu> {
    let version = fs::read_to_string(driver.join("version")).ok().and_then(|text| driver_version(&text));
    let mut slots: Vec<_> = fs::read_dir(driver.join("gpus")).into_iter().flatten().flatten().collect();
    slots.sort_by_key(std::fs::DirEntry::file_name);
    let read = |slot: &fs::DirEntry| {
        let text = fs::read_to_string(slot.path().join("information")).ok()?;
        Some(Gpu {
            model: field(&text, "Model")?.to_owned(),
            uuid: field(&text, "GPU UUID").map(str::to_owned),
            driver: version.clone(),
        })
    };
    let found: Vec<Gpu> = slots.iter().filter_map(read).collect();
    if found.is_empty() { ask_nvidia_smi() } else { found }
}

/// `NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.10  Fri …`: the first word that is a dotted number.
fn driver_version(text: &str) -> Option<String> {
    let dotted = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    field(text, "NVRM version")?.split_ascii_whitespace().find(dotted).map(str::to_owned)
}

fn ask_nvidia_smi() -> Vec<Gpu> {
    let mut command = Command::new("nvidia-smi");
    command.args(["--query-gpu=name,uuid,driver_version", "--format=csv,noheader"]);
    let Ok(output) = command.output() else { return Vec::new() };
    if !output.status.success() {
        return Vec::new();
    }
    String::from_utf8_lossy(&output.stdout).lines().filter_map(parse_smi).collect()
}

fn parse_smi(line: &str) -> Option<Gpu> {
    let mut parts = line.split(',').map(str::trim);
    let model = parts.next().filter(|model| !model.is_empty())?.to_owned();
    Some(Gpu { model, uuid: parts.next().map(str::to_owned), driver: parts.next().map(str::to_owned) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_name_cores_and_memory() {
        let machine = Machine::this();
        assert!(!machine.host.is_empty() && machine.kernel.starts_with("Linux "));
        assert!(machine.cores > 0 && machine.memory_bytes.unwrap() > 1 << 20);
    }

    #[test]
    fn the_drivers_directory_is_read() {
        let driver = tempfile::tempdir().unwrap();
        let version =
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build\nGCC version: 13\n";
        fs::write(driver.path().join("version"), version).unwrap();
        for (slot, uuid) in [("0000:1b:00.0", "GPU-b"), ("0000:0a:00.0", "GPU-a")] {
            fs::create_dir_all(driver.path().join("gpus").join(slot)).unwrap();
            let text = format!("Model: \t\t NVIDIA B200\nIRQ:   1\nGPU UUID: \t {uuid}\n");
            fs::write(driver.path().join("gpus").join(slot).join("information"), text).unwrap();
        }
        let gpu = |uuid: &str| Gpu {
            model: "NVIDIA B200".to_owned(),
            uuid: Some(uuid.to_owned()),
            driver: Some("570.86.10".to_owned()),
        };
        assert_eq!(gpus(driver.path()), [gpu("GPU-a"), gpu("GPU-b")]);
        assert_eq!(parse_smi("NVIDIA B200, GPU-a, 570.86.10"), Some(gpu("GPU-a")));
        assert_eq!(parse_smi(""), None);
    }

    #[test]
    fn proc_files_are_read_by_their_keys() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: AMD EPYC\n").as_deref(), Some("AMD EPYC"));
        assert_eq!(cpu_model("").as_deref(), None);
        assert_eq!(memory("MemTotal:       16 kB\nMemFree: 1 kB\n"), Some(16384));
    }
}
