//! The environment of the process: a function-as-a-service platform, a container, an agent, all of
//! them or none.

use bson::RawDocumentBuf;
use bson::raw::cstr;

use super::MAX_DOCUMENT_LEN;
use crate::text::beginning;

/// The environment of the process, detected by its variables and files.
///
/// The default is an environment of which nothing is known.
///
/// ```
/// use sdam_core::config::metadata::Environment;
///
/// // A program passes `|name| std::env::var(name).ok()` and `|path| Path::new(path).exists()`.
/// let environment = Environment::detect(|name| (name == "VERCEL").then(|| "1".into()), |_| false);
/// assert!(environment.is_faas());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    faas: Option<Faas>,
    agent: Option<String>,
    docker: bool,
    kubernetes: bool,
}

/// The part of `client.env` that is sent, from most to least.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum EnvDetail {
    Everything,
    NameAndAgent,
    NameOnly,
    Nothing,
}

/// The variables by which known agents that write programs announce themselves, and what they are
/// called; the first that is populated counts (Handshake, "Agent").
const AGENTS: [(&str, &str); 11] = [
    ("CLAUDECODE", "claude_code"),
    ("CLAUDE_CODE_ENTRYPOINT", "claude_code"),
    ("CURSOR_AGENT", "cursor"),
    ("CODEX_SANDBOX", "codex_cli"),
    ("CLINE_ACTIVE", "cline"),
    ("GEMINI_CLI", "gemini_cli"),
    ("AUGMENT_AGENT", "auggie_cli"),
    ("OPENCODE", "opencode_client"),
    ("TRAE_AI_SHELL_ID", "trae_ai"),
    ("GOOSE_TERMINAL", "goose"),
    ("GOOSE_AGENT", "goose"),
];

/// The variable by which any agent can name itself, and the maximum length of that, in bytes.
const ANY_AGENT: &str = "AI_AGENT";
const MAX_AGENT_LEN: usize = 64;

/// A function-as-a-service platform, and what it says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Faas {
    name: &'static str,
    timeout_sec: Option<i32>,
    memory_mb: Option<i32>,
    region: Option<String>,
}

impl Environment {
    /// Finds out what the process runs in.
    ///
    /// `variable` returns the value of an environment variable, `exists` whether there is a file
    /// with that absolute path. An empty variable counts as absent.
    pub fn detect(
        variable: impl Fn(&str) -> Option<String>,
        exists: impl Fn(&str) -> bool,
    ) -> Self {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        Self {
            docker: exists("/.dockerenv"),
            kubernetes: variable("KUBERNETES_SERVICE_HOST").is_some(),
            agent: detect_agent(variable),
            faas: detect_faas(variable),
        }
    }

    /// Returns whether this is one function-as-a-service platform, known without doubt.
    ///
    /// Such a platform suspends processes, so that streaming monitors would read old news
    /// (Server Monitoring, "serverMonitoringMode").
    pub const fn is_faas(&self) -> bool {
        self.faas.is_some()
    }

    /// Returns what is known in this detail, an empty document if that is nothing.
    pub(super) fn document(&self, detail: EnvDetail) -> RawDocumentBuf {
        let mut env = RawDocumentBuf::new();
        if let Some(faas) = self.faas.as_ref().filter(|_| detail != EnvDetail::Nothing) {
            env.append(cstr!("name"), faas.name);
        }
        let has_agent = matches!(detail, EnvDetail::Everything | EnvDetail::NameAndAgent);
        if let Some(agent) = self.agent.as_ref().filter(|_| has_agent) {
            env.append(cstr!("agent"), agent.as_str());
        }
        if detail != EnvDetail::Everything {
            return env;
        }
        if let Some(faas) = &self.faas {
            if let Some(seconds) = faas.timeout_sec {
                env.append(cstr!("timeout_sec"), seconds);
            }
            if let Some(megabytes) = faas.memory_mb {
                env.append(cstr!("memory_mb"), megabytes);
            }
            if let Some(region) = &faas.region {
                env.append(cstr!("region"), region.as_str());
            }
        }
        let mut container = RawDocumentBuf::new();
        if self.docker {
            container.append(cstr!("runtime"), "docker");
        }
        if self.kubernetes {
            container.append(cstr!("orchestrator"), "kubernetes");
        }
        if !container.is_empty() {
            env.append(cstr!("container"), container);
        }
        env
    }
}

/// Finds the agent that drives the client (Handshake, "Agent"): a known one by its fixed name, or
/// else one that names itself, in lower case and cut between characters.
fn detect_agent(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let populated = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
    if let Some((_, agent)) = AGENTS.iter().find(|(name, _)| populated(name).is_some()) {
        return Some((*agent).to_owned());
    }
    let named = populated(ANY_AGENT)?.trim().to_lowercase();
    Some(match named.as_str() {
        "1" | "true" => "ai_agent".to_owned(),
        named => beginning(named, MAX_AGENT_LEN).to_owned(),
    })
}

fn detect_faas(variable: impl Fn(&str) -> Option<String>) -> Option<Faas> {
    let has = |name| variable(name).is_some();
    let lambda = variable("AWS_EXECUTION_ENV").is_some_and(|env| env.starts_with("AWS_Lambda_"));
    let aws = lambda || has("AWS_LAMBDA_RUNTIME_API");
    let azure = has("FUNCTIONS_WORKER_RUNTIME");
    let gcp = has("K_SERVICE") || has("FUNCTION_NAME");
    let vercel = has("VERCEL");

    // A value of another type only costs its own field.
    let number = |name| variable(name).and_then(|value| value.parse::<i32>().ok());
    // What could never be sent is not kept.
    let text = |name| variable(name).filter(|value| value.len() <= MAX_DOCUMENT_LEN);
    let platform = |name| Faas { name, timeout_sec: None, memory_mb: None, region: None };
    // Handshake, "FaaS": Vercel runs on Lambda; any other combination says nothing.
    match (vercel, aws, azure, gcp) {
        (true, _, false, false) => {
            Some(Faas { region: text("VERCEL_REGION"), ..platform("vercel") })
        }
        (false, true, false, false) => Some(Faas {
            region: text("AWS_REGION"),
            memory_mb: number("AWS_LAMBDA_FUNCTION_MEMORY_SIZE"),
            ..platform("aws.lambda")
        }),
        (false, false, true, false) => Some(platform("azure.func")),
        (false, false, false, true) => Some(Faas {
            region: text("FUNCTION_REGION"),
            memory_mb: number("FUNCTION_MEMORY_MB"),
            timeout_sec: number("FUNCTION_TIMEOUT_SEC"),
            ..platform("gcp.func")
        }),
        _ => None,
    }
}
