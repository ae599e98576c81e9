//! `--kv-transfer-config`, and the config file of Mooncake: which KV store the engine uses and how it reaches it.
//!
//! Each connector takes exactly its own extra fields. A store that runs as a service must answer when the engine starts,
//! as with the real engine: [`KvTransfer::connect`] opens a TCP connection and keeps it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value as Json;
use tokio::net::TcpStream;

use super::{Environment, SimError};

/// How often a store is tried before the engine gives up.
const ATTEMPTS: u32 = 5;
/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// Where KV blocks go besides the GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvTransfer {
    /// DRAM of the engine's own process.
    SimpleCpuOffload {
        /// Bytes of DRAM for each rank.
        bytes_per_rank: u64,
    },
    /// A Mooncake store, named by the file in `MOONCAKE_CONFIG_PATH`.
    Mooncake,
    /// An LMCache server.
    LmCache {
        /// Its host.
        host: String,
        /// Its port.
        port: u16,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    kv_connector: String,
    kv_role: String,
    #[serde(default)]
    kv_connector_extra_config: Json,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SimpleExtra {
    cpu_bytes_to_use_per_rank: u64,
    #[serde(rename = "lazy_offload")]
    _lazy_offload: bool,
    enable_cross_layers_blocks: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MooncakeExtra {
    #[serde(rename = "load_async")]
    _load_async: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LmCacheExtra {
    #[serde(rename = "lmcache.mp.host")]
    host: String,
    #[serde(rename = "lmcache.mp.port")]
    port: u16,
    #[serde(rename = "lmcache.mp.mq_timeout")]
    mq_timeout: u64,
}

/// A type from a JSON object, and from nothing else that serde would take for it.
pub(super) fn typed<T: serde::de::DeserializeOwned>(json: Json) -> Result<T, String> {
    if !json.is_object() {
        return Err(format!("{json} is not an object"));
    }
    serde_json::from_value(json).map_err(|error| error.to_string())
}

impl KvTransfer {
    /// Reads the value of `--kv-transfer-config`.
    ///
    /// # Errors
    /// What is wrong with it, one sentence.
    pub fn parse(json: Json) -> Result<Self, String> {
        let config: Config = typed(json)?;
        if config.kv_role != "kv_both" {
            return Err(format!("kv_role `{}` is not kv_both", config.kv_role));
        }
        let extra = config.kv_connector_extra_config;
        let within = |why: String| format!("kv_connector_extra_config: {why}");
        match config.kv_connector.as_str() {
            "SimpleCPUOffloadConnector" => {
                let extra: SimpleExtra = typed(extra).map_err(within)?;
                if extra.cpu_bytes_to_use_per_rank == 0 {
                    return Err("cpu_bytes_to_use_per_rank is 0: nothing could be offloaded".to_owned());
                }
                if !["true", "false"].contains(&extra.enable_cross_layers_blocks.as_str()) {
                    let found = extra.enable_cross_layers_blocks;
                    return Err(format!("enable_cross_layers_blocks `{found}` is neither \"true\" nor \"false\""));
                }
                Ok(Self::SimpleCpuOffload { bytes_per_rank: extra.cpu_bytes_to_use_per_rank })
            }
            "MooncakeStoreConnector" => {
                typed::<MooncakeExtra>(extra).map_err(within)?;
                Ok(Self::Mooncake)
            }
            "LMCacheMPConnector" => {
                let extra: LmCacheExtra = typed(extra).map_err(within)?;
                let Some(host) = extra.host.strip_prefix("tcp://").filter(|host| !host.is_empty()) else {
                    return Err(format!("lmcache.mp.host `{}` is not tcp://HOST", extra.host));
                };
                if extra.port == 0 || extra.mq_timeout == 0 {
                    return Err("lmcache.mp.port and lmcache.mp.mq_timeout must not be 0".to_owned());
                }
                Ok(Self::LmCache { host: host.to_owned(), port: extra.port })
            }
            other => Err(format!(
                "kv_connector `{other}` is none of SimpleCPUOffloadConnector, MooncakeStoreConnector, LMCacheMPConnector"
            )),
        }
    }

    /// Opens the connection to the store, where it is a service of its own. `environment` looks up a variable.
    ///
    /// # Errors
    /// The config file is missing or faulty, or the store does not answer.
    pub async fn connect(&self, environment: Environment<'_>) -> Result<Option<TcpStream>, SimError> {
        match self {
            Self::SimpleCpuOffload { .. } => Ok(None),
            Self::Mooncake => {
                let address = MooncakeConfig::from_environment(environment)?.master_server_address;
                dial("the Mooncake master", &address).await.map(Some)
            }
            Self::LmCache { host, port } => dial("the LMCache server", &format!("{host}:{port}")).await.map(Some),
        }
    }
}

async fn dial(what: &'static str, address: &str) -> Result<TcpStream, SimError> {
    let mut attempt = 1;
    loop {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(source) if attempt == ATTEMPTS => {
                return Err(SimError::Connect { what, address: address.to_owned(), source });
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
        attempt += 1;
    }
}

/// The variable that names the config file.
const MOONCAKE_CONFIG_PATH: &str = "MOONCAKE_CONFIG_PATH";

/// The config file of an embedded Mooncake store.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MooncakeConfig {
    /// `embedded`: the store lives in the engine's process.
    pub mode: String,
    /// `P2PHANDSHAKE`: no metadata server.
    pub metadata_server: String,
    /// `HOST:PORT` of the master.
    pub master_server_address: String,
    /// DRAM that this process gives, such as `299GB`.
    pub global_segment_size: String,
    /// DRAM for transfers, such as `4GB`.
    pub local_buffer_size: String,
    /// `rdma` or `tcp`.
    pub protocol: String,
    /// RDMA devices, one string with commas.
    #[serde(default)]
    pub device_name: String,
    /// Whether blocks also go to disk.
    #[serde(default)]
    pub enable_offload: bool,
}

impl MooncakeConfig {
    fn from_environment(environment: Environment<'_>) -> Result<Self, SimError> {
        let path =
            environment(MOONCAKE_CONFIG_PATH).filter(|path| !path.is_empty()).ok_or(SimError::NoMooncakeConfig)?;
        Self::read(Path::new(&path))
    }

    /// Reads and checks the file.
    ///
    /// # Errors
    /// It cannot be read, is not such a document, or holds a value that Mooncake would refuse.
    pub fn read(path: &Path) -> Result<Self, SimError> {
        let text = std::fs::read(path).map_err(|source| SimError::Read { path: path.to_owned(), source })?;
        let fault = |why: String| SimError::ConfigFile { path: PathBuf::from(path), why };
        let config: Self = serde_json::from_slice(&text).map_err(|error| fault(error.to_string()))?;
        config.check().map_err(fault)?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        if self.mode != "embedded" {
            return Err(format!("mode `{}` is not embedded", self.mode));
        }
        if self.metadata_server != "P2PHANDSHAKE" {
            return Err(format!("metadata_server `{}` is not P2PHANDSHAKE", self.metadata_server));
        }
        let port = self.master_server_address.rsplit_once(':').and_then(|(host, port)| {
            let port: u16 = port.parse().ok()?;
            (!host.is_empty() && port > 0).then_some(port)
        });
        if port.is_none() {
            return Err(format!("master_server_address `{}` is not HOST:PORT", self.master_server_address));
        }
        for (name, size) in
            [("global_segment_size", &self.global_segment_size), ("local_buffer_size", &self.local_buffer_size)]
        {
            if !is_size(size) {
                return Err(format!("{name} `{size}` is not a size such as 4GB"));
            }
        }
        match self.protocol.as_str() {
            "tcp" => Ok(()),
            "rdma" if self.device_name.split(',').all(|device| !device.trim().is_empty()) => Ok(()),
            "rdma" => Err(format!("protocol rdma needs device names with commas between, not `{}`", self.device_name)),
            other => Err(format!("protocol `{other}` is neither rdma nor tcp")),
        }
    }
}

fn is_size(text: &str) -> bool {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = &text[..text.len() - unit.len()];
    number.parse::<u64>().is_ok_and(|number| number > 0) && ["KB", "MB", "GB", "TB"].contains(&unit)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mooncake() -> Json {
        json!({
            "mode": "embedded", "metadata_server": "P2PHANDSHAKE", "master_server_address": "127.0.0.1:50051",
            "global_segment_size": "299GB", "local_buffer_size": "4GB", "protocol": "rdma",
            "device_name": "mlx5_0,mlx5_1", "enable_offload": false,
        })
    }

    fn read(json: &Json) -> Result<MooncakeConfig, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mooncake.json");
        std::fs::write(&path, json.to_string()).unwrap();
        MooncakeConfig::read(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn the_three_connectors_are_read() {
        let simple = json!({"kv_connector": "SimpleCPUOffloadConnector", "kv_role": "kv_both", "kv_connector_extra_config":
            {"cpu_bytes_to_use_per_rank": 299_875_000_000_u64, "lazy_offload": false, "enable_cross_layers_blocks": "true"}});
        assert_eq!(KvTransfer::parse(simple), Ok(KvTransfer::SimpleCpuOffload { bytes_per_rank: 299_875_000_000 }));
        let mooncake = json!({"kv_connector": "MooncakeStoreConnector", "kv_role": "kv_both",
            "kv_connector_extra_config": {"load_async": true}});
        assert_eq!(KvTransfer::parse(mooncake), Ok(KvTransfer::Mooncake));
        let lmcache = json!({"kv_connector": "LMCacheMPConnector", "kv_role": "kv_both", "kv_connector_extra_config":
            {"lmcache.mp.host": "tcp://127.0.0.1", "lmcache.mp.port": 6555, "lmcache.mp.mq_timeout": 300}});
        assert_eq!(KvTransfer::parse(lmcache), Ok(KvTransfer::LmCache { host: "127.0.0.1".to_owned(), port: 6555 }));
    }

    #[test]
    fn a_field_of_another_connector_or_a_wrong_value_is_refused() {
        let with = |connector: &str, extra: Json| {
            KvTransfer::parse(
                json!({"kv_connector": connector, "kv_role": "kv_both", "kv_connector_extra_config": extra}),
            )
            .unwrap_err()
        };
        let both = json!({"load_async": true, "lazy_offload": false});
        assert!(with("MooncakeStoreConnector", both).contains("unknown field `lazy_offload`"));
        assert!(with("NixlConnector", json!({})).contains("`NixlConnector` is none of"));
        let zero = json!({"cpu_bytes_to_use_per_rank": 0, "lazy_offload": false, "enable_cross_layers_blocks": "true"});
        assert!(with("SimpleCPUOffloadConnector", zero).contains("is 0"));
        let boolean =
            json!({"cpu_bytes_to_use_per_rank": 1, "lazy_offload": false, "enable_cross_layers_blocks": true});
        assert!(with("SimpleCPUOffloadConnector", boolean).contains("invalid type"));
        let bare = json!({"lmcache.mp.host": "127.0.0.1", "lmcache.mp.port": 1, "lmcache.mp.mq_timeout": 300});
        assert!(with("LMCacheMPConnector", bare).contains("is not tcp://HOST"));
    }

    #[test]
    fn the_mooncake_file_is_read() {
        assert_eq!(read(&mooncake()).unwrap().master_server_address, "127.0.0.1:50051");
    }

    #[test]
    fn every_faulty_value_of_the_mooncake_file_is_named() {
        for (field, value, why) in [
            ("mode", json!("standalone"), "is not embedded"),
            ("metadata_server", json!("etcd://x"), "is not P2PHANDSHAKE"),
            ("master_server_address", json!("127.0.0.1"), "is not HOST:PORT"),
            ("master_server_address", json!(":80"), "is not HOST:PORT"),
            ("global_segment_size", json!("299"), "is not a size"),
            ("local_buffer_size", json!("0GB"), "is not a size"),
            ("protocol", json!("nvlink"), "neither rdma nor tcp"),
            ("device_name", json!(""), "needs device names"),
            ("device_name", json!(["mlx5_0"]), "invalid type"),
            ("unheard_of", json!(1), "unknown field"),
        ] {
            let mut config = mooncake();
            config[field] = value;
            let error = read(&config).unwrap_err();
            assert!(error.contains(why) && error.contains("mooncake.json"), "{field}: {error}");
        }
    }
}
