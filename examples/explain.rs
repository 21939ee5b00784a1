//! Explains a pod as `istio-cnictl explain` does: its injection, its redirection, and the rules that decide them.

#![expect(clippy::print_stdout, reason = "prints the explanation")]

use clap::Parser as _;
use cnictl::{self, Error, Program, Streams};
use contract::diagnostics::terminal::Style;

const POD: &str = "
kind: Pod
apiVersion: v1
metadata: { name: web-0, namespace: shop, annotations: { sidecar.istio.io/status: '{}' } }
spec: { containers: [{ name: istio-proxy, args: [proxy, sidecar] }] }
";

async fn explain(pod: &str) -> Result<String, Error> {
    let program = Program::parse_from(["istio-cnictl", "explain", "--builtIn", "--filename=-"]);
    let (mut input, mut out, mut err) = (pod.as_bytes(), Vec::new(), Vec::new());
    cnictl::run(&program.command, Streams { input: &mut input, out: &mut out, err: &mut err, style: Style::PLAIN })
        .await?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    print!("{}", explain(POD).await?);
    Ok(())
}

#[tokio::test]
async fn a_sidecar_is_redirected() {
    let text = explain(POD).await.unwrap_or_else(|error| panic!("{error}"));
    assert!(text.contains("redirect"), "{text}");
}
