//! Validates the objects of the charts, with all features enabled, against the API server's own schemas. The dry runs
//! use strict validation, which refuses unknown and duplicate fields.

use std::io::Write as _;

use anyhow::{Result, ensure};

use crate::agent::{CHART, helm, kubectl};
use crate::stage::{Case, Scope, Stage};

pub(crate) const CASES: &[Case] = &[Case {
    name: "the_charts_pass_strict_validation_with_all_features",
    namespace: "strict",
    scope: Scope::Full,
    body: strict,
}];

const INJECTOR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/install/helm/sidecar-injector");

/// The flag with the Kubernetes version. Without it, helm assumes an old version, for which the charts omit
/// ValidatingAdmissionPolicies.
const KUBERNETES: &str = "--kube-version=1.33.0";

/// Charts with sets of values. The sets of a chart together render every object that it can create, except objects of
/// custom kinds, which this API server does not have.
const RENDERINGS: &[(&str, &[&str])] = &[
    (CHART, &[]),
    (
        CHART,
        &[
            "repair.mode=repair-or-evict",
            "taint.enabled=true",
            "statusPage.enabled=true",
            "monitoring.dashboards.enabled=true",
            "resourceQuotas.enabled=true",
            "global.networkPolicy.enabled=true",
            "seLinuxOptions.type=spc_t",
            "podLabels.team=mesh",
            "env.GODEBUG=x",
        ],
    ),
    (CHART, &["repair.mode=label", "repair.dryRun=true", "admissionPolicy.evictions=false"]),
    (CHART, &["repair.mode=delete", "useAppArmorAnnotation=false", "revision=canary"]),
    (INJECTOR, &[]),
    (
        INJECTOR,
        &[
            "monitoring.dashboards.enabled=true",
            "dapr.enabled=true",
            "dapr.image=localhost/daprd:1",
            "dapr.watchdog.interval=2m",
            "dapr.watchdog.deletePods=true",
            "global.networkPolicy.enabled=true",
            "global.networkPolicy.apiServers={10.0.0.1/32}",
        ],
    ),
];

fn strict(_: &Stage<'_>) -> Result<()> {
    for (chart, values) in RENDERINGS {
        let set = values.iter().flat_map(|value| ["--set", value]);
        let rendered = helm(
            &["template", "strict", chart, "--namespace=kube-system", KUBERNETES]
                .into_iter()
                .chain(set)
                .collect::<Vec<_>>(),
        )?;
        let created = dry_run(&rendered)?;
        ensure!(created.contains("(server dry run)"), "{chart} {values:?}: {created:?}");
        let wrong = rendered.replacen("      serviceAccountName:", "      serviceAccountNames:", 1);
        ensure!(wrong != rendered, "{chart} names no service account");
        let Err(refusal) = dry_run(&wrong) else { anyhow::bail!("{chart}: an unknown field was accepted") };
        let refusal = format!("{refusal:#}");
        ensure!(refusal.contains(r#"unknown field "spec.template.spec.serviceAccountNames""#), "{refusal}");
    }
    Ok(())
}

/// Applies objects in a dry run and returns kubectl's line for each.
fn dry_run(objects: &str) -> Result<String> {
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(objects.as_bytes())?;
    let path = file.path().display().to_string();
    kubectl(&["apply", "--dry-run=server", "--validate=strict", "--filename", &path])
}
