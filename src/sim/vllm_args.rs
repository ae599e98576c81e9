//! The command line of `vllm serve`, after these two words: what the simulated engine takes from it, and what it refuses.
//!
//! The flags are those of the recipes. Everything that shapes the simulation (ports, batch limit, parallelism, context
//! length, block size, speculation, KV transfer) comes from here alone. Flags that change nothing in a simulation are
//! checked for their type, because a rehearsal is there to find the flag that the real engine would refuse.

use serde::Deserialize;

use super::argv::{ArgvError, COUNT, Grammar, Kind, PORT, Parsed, RATIO};
use super::kv_transfer::{self, KvTransfer};

const GRAMMAR: Grammar = Grammar {
    program: "vllm serve",
    positionals: &["MODEL_PATH"],
    flags: &[
        ("--attention-config", Kind::Json),
        ("--block-size", COUNT),
        ("--compilation-config", Kind::Json),
        ("--data-parallel-size", COUNT),
        ("--decode-context-parallel-size", COUNT),
        ("--disable-uvicorn-access-log", Kind::Switch),
        ("--enable-auto-tool-choice", Kind::Switch),
        ("--enable-cumem-allocator", Kind::Switch),
        ("--enable-ep-weight-filter", Kind::Switch),
        ("--enable-expert-parallel", Kind::Switch),
        ("--gpu-memory-utilization", RATIO),
        ("--host", Kind::Text),
        ("--kv-cache-dtype", Kind::Choice(&["auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2"])),
        ("--kv-transfer-config", Kind::Json),
        ("--max-cudagraph-capture-size", COUNT),
        ("--max-model-len", COUNT),
        ("--max-num-seqs", COUNT),
        ("--moe-backend", Kind::Choice(&["deep_gemm_amxf4_mega_moe"])),
        ("--no-disable-hybrid-kv-cache-manager", Kind::Switch),
        ("--no-enable-flashinfer-autotune", Kind::Switch),
        ("--numa-bind", Kind::Switch),
        ("--port", PORT),
        ("--prefill-context-parallel-size", COUNT),
        ("--prefill-schedule-interval", COUNT),
        ("--reasoning-parser", Kind::Choice(&["deepseek_v4"])),
        ("--served-model-name", Kind::Text),
        ("--speculative-config", Kind::Json),
        ("--tensor-parallel-size", COUNT),
        ("--tokenizer-mode", Kind::Choice(&["deepseek_v4"])),
        ("--tool-call-parser", Kind::Choice(&["deepseek_v4"])),
        ("--trust-remote-code", Kind::Switch),
    ],
};

/// What the engine simulates.
#[derive(Debug, Clone, PartialEq)]
pub struct VllmArgs {
    /// Where the weights would be; only shown.
    pub model_path: String,
    /// The name that requests must use.
    pub served_model_name: String,
    /// The address to listen on.
    pub host: String,
    /// The port to listen on.
    pub port: u16,
    /// Sequences in a batch of one data-parallel rank.
    pub max_num_seqs: usize,
    /// Tokens of prompt and reply together.
    pub max_model_len: u64,
    /// Tokens in a KV block.
    pub block_size: u64,
    /// GPUs that share a batch.
    pub tensor_parallel: u64,
    /// Independent batches.
    pub data_parallel: usize,
    /// Steps from one chance to prefill to the next while sequences decode.
    pub prefill_interval: u64,
    /// Drafting, if any.
    pub speculative: Option<Speculative>,
    /// Where KV blocks go besides the GPU, if anywhere.
    pub kv_transfer: Option<KvTransfer>,
}

/// Drafting as the engine was told.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speculative {
    /// Drafted tokens a step, N.
    pub tokens: u64,
    /// Accepted tokens a step with the bonus token, in [1, N+1]; `None` leaves acceptance to the (simulated) model.
    pub synthetic_length: Option<f64>,
}

/// `--speculative-config` as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpeculativeConfig {
    method: String,
    num_speculative_tokens: u64,
    rejection_sample_method: Option<String>,
    synthetic_acceptance_length: Option<f64>,
}

impl VllmArgs {
    /// Reads the words after `vllm serve`.
    ///
    /// # Errors
    /// All faults of the command line.
    pub fn parse(argv: &[String]) -> Result<Self, ArgvError> {
        let mut parsed = GRAMMAR.parse(argv);
        let args = Self {
            model_path: parsed.text("MODEL_PATH").unwrap_or_default().to_owned(),
            served_model_name: parsed.need_text("--served-model-name"),
            host: parsed.need_text("--host"),
            port: parsed.need_port("--port"),
            max_num_seqs: need_size(&mut parsed, "--max-num-seqs"),
            max_model_len: parsed.need_integer("--max-model-len"),
            block_size: parsed.need_integer("--block-size"),
            tensor_parallel: parsed.need_integer("--tensor-parallel-size"),
            data_parallel: need_size(&mut parsed, "--data-parallel-size"),
            prefill_interval: parsed.integer("--prefill-schedule-interval").unwrap_or(1),
            speculative: speculative(&mut parsed),
            kv_transfer: transfer(&mut parsed),
        };
        for flag in ["--moe-backend", "--enable-ep-weight-filter"] {
            parsed.needs(flag, "--enable-expert-parallel");
        }
        parsed.needs("--enable-auto-tool-choice", "--tool-call-parser");
        if matches!(args.kv_transfer, Some(KvTransfer::LmCache { .. })) && parsed.has("--enable-cumem-allocator") {
            parsed.conflict("--enable-cumem-allocator does not go with LMCacheMPConnector");
        }
        if let Some(dcp) = parsed.integer("--decode-context-parallel-size")
            && !args.tensor_parallel.is_multiple_of(dcp)
        {
            parsed.conflict(format!("--decode-context-parallel-size {dcp} does not divide --tensor-parallel-size"));
        }
        for flag in ["--attention-config", "--compilation-config"] {
            if parsed.json(flag).is_some_and(|json| !json.is_object()) {
                parsed.conflict(format!("{flag} must be a JSON object"));
            }
        }
        parsed.finish(args)
    }
}

fn need_size(parsed: &mut Parsed, flag: &'static str) -> usize {
    usize::try_from(parsed.need_integer(flag)).unwrap_or(usize::MAX)
}

fn speculative(parsed: &mut Parsed) -> Option<Speculative> {
    let json = parsed.json("--speculative-config")?.clone();
    let read = kv_transfer::typed::<SpeculativeConfig>(json);
    match read.and_then(|config| config.check()) {
        Ok(speculative) => Some(speculative),
        Err(why) => {
            parsed.conflict(format!("--speculative-config: {why}"));
            None
        }
    }
}

impl SpeculativeConfig {
    fn check(self) -> Result<Speculative, String> {
        if self.method != "mtp" {
            return Err(format!("method `{}` is not mtp", self.method));
        }
        let most = self.num_speculative_tokens;
        if !(1..=64).contains(&most) {
            return Err(format!("num_speculative_tokens {most} is not from 1 to 64"));
        }
        let synthetic_length = match (self.rejection_sample_method.as_deref(), self.synthetic_acceptance_length) {
            (None, None) => None,
            (Some("synthetic"), Some(length)) => {
                let limit = (most + 1) as f64;
                if !(1.0..=limit).contains(&length) {
                    return Err(format!("synthetic_acceptance_length {length} is not from 1 to {limit}"));
                }
                Some(length)
            }
            (Some("synthetic"), None) => {
                return Err("rejection_sample_method synthetic needs synthetic_acceptance_length".to_owned());
            }
            (Some(other), _) => return Err(format!("rejection_sample_method `{other}` is not synthetic")),
            (None, Some(_)) => {
                return Err("synthetic_acceptance_length needs rejection_sample_method synthetic".to_owned());
            }
        };
        Ok(Speculative { tokens: most, synthetic_length })
    }
}

fn transfer(parsed: &mut Parsed) -> Option<KvTransfer> {
    let json = parsed.json("--kv-transfer-config")?.clone();
    match KvTransfer::parse(json) {
        Ok(transfer) => Some(transfer),
        Err(why) => {
            parsed.conflict(format!("--kv-transfer-config: {why}"));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUIRED: &[&str] = &[
        "/models/m",
        "--served-model-name=org/m",
        "--host=127.0.0.1",
        "--port=8000",
        "--max-num-seqs=16",
        "--max-model-len=4096",
        "--block-size=256",
        "--tensor-parallel-size=8",
        "--data-parallel-size=1",
    ];

    fn with(more: &[&str]) -> Result<VllmArgs, String> {
        let argv: Vec<String> = REQUIRED.iter().chain(more).map(|word| (*word).to_owned()).collect();
        VllmArgs::parse(&argv).map_err(|error| error.to_string())
    }

    fn speculative(json: &str) -> Result<Option<Speculative>, String> {
        with(&["--speculative-config", json]).map(|args| args.speculative)
    }

    #[test]
    fn the_whole_line_of_a_dep8_mtp_arm_is_taken() {
        let args = with(&[
            "--trust-remote-code",
            "--kv-cache-dtype=fp8",
            "--numa-bind",
            "--enable-cumem-allocator",
            "--no-enable-flashinfer-autotune",
            "--tokenizer-mode=deepseek_v4",
            "--reasoning-parser=deepseek_v4",
            "--attention-config",
            r#"{"backend":"FLASHINFER_MLA_SPARSE_DSV4","use_fp4_indexer_cache":true}"#,
            "--no-disable-hybrid-kv-cache-manager",
            "--disable-uvicorn-access-log",
            "--compilation-config",
            r#"{"cudagraph_mode":"FULL_DECODE_ONLY","mode":0}"#,
            "--gpu-memory-utilization=0.9",
            "--max-cudagraph-capture-size=64",
            "--tool-call-parser=deepseek_v4",
            "--enable-auto-tool-choice",
            "--enable-expert-parallel",
            "--moe-backend=deep_gemm_amxf4_mega_moe",
            "--enable-ep-weight-filter",
            "--prefill-schedule-interval=16",
            "--decode-context-parallel-size=4",
            "--prefill-context-parallel-size=1",
            "--speculative-config",
            r#"{"method":"mtp","num_speculative_tokens":3,"rejection_sample_method":"synthetic","synthetic_acceptance_length":2.49}"#,
        ])
        .unwrap();
        assert_eq!(args.prefill_interval, 16);
        assert_eq!(args.speculative, Some(Speculative { tokens: 3, synthetic_length: Some(2.49) }));
        assert_eq!((args.port, args.max_num_seqs, args.tensor_parallel, args.data_parallel), (8000, 16, 8, 1));
    }

    #[test]
    fn what_the_simulation_rests_on_must_be_there() {
        let error = VllmArgs::parse(&["m".to_owned()]).unwrap_err().to_string();
        for flag in ["--served-model-name", "--host", "--port", "--max-num-seqs", "--max-model-len", "--block-size"] {
            assert!(error.contains(&format!("{flag} is missing")), "{error}");
        }
    }

    #[test]
    fn the_eval_form_of_speculation_leaves_acceptance_to_the_model() {
        let eval = speculative(r#"{"method":"mtp","num_speculative_tokens":3}"#).unwrap();
        assert_eq!(eval, Some(Speculative { tokens: 3, synthetic_length: None }));
    }

    #[test]
    fn speculation_that_the_engine_would_refuse_is_refused() {
        for (json, why) in [
            (r#"{"method":"mtp","num_speculative_tokens":3,"foo":1}"#, "unknown field `foo`"),
            (r#"{"method":"eagle9","num_speculative_tokens":3}"#, "`eagle9` is not mtp"),
            (r#"{"method":"mtp","num_speculative_tokens":0}"#, "from 1 to 64"),
            (r#"{"method":"mtp","num_speculative_tokens":3,"rejection_sample_method":"synthetic"}"#, "needs"),
            (r#"{"method":"mtp","num_speculative_tokens":3,"synthetic_acceptance_length":2.0}"#, "needs"),
            (
                r#"{"method":"mtp","num_speculative_tokens":3,"rejection_sample_method":"synthetic","synthetic_acceptance_length":4.01}"#,
                "from 1 to 4",
            ),
            ("3", "not an object"),
            ("[\"mtp\", 3, null, null]", "not an object"),
        ] {
            let error = speculative(json).unwrap_err();
            assert!(error.contains("--speculative-config") && error.contains(why), "{json}: {error}");
        }
    }

    #[test]
    fn contradictions_are_refused() {
        for (more, why) in [
            (vec!["--enable-ep-weight-filter"], "--enable-ep-weight-filter needs --enable-expert-parallel"),
            (vec!["--enable-auto-tool-choice"], "--enable-auto-tool-choice needs --tool-call-parser"),
            (vec!["--decode-context-parallel-size=3"], "does not divide"),
            (vec!["--attention-config=[]"], "must be a JSON object"),
            (
                vec![
                    "--enable-cumem-allocator",
                    "--kv-transfer-config",
                    r#"{"kv_connector":"LMCacheMPConnector","kv_role":"kv_both","kv_connector_extra_config":{"lmcache.mp.host":"tcp://127.0.0.1","lmcache.mp.port":7,"lmcache.mp.mq_timeout":300}}"#,
                ],
                "does not go with LMCacheMPConnector",
            ),
        ] {
            let error = with(&more).unwrap_err();
            assert!(error.contains(why), "{more:?}: {error}");
        }
    }
}
