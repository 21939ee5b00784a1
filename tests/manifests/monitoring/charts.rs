//! Tests of the objects with which the charts install dashboards, rules and monitors.

use std::fs;

use serde_json::{Value, json};

use super::DIRECTORY;
use crate::helm::{AGENT, Chart, INJECTOR};
use crate::objects::{is_known, of_kind, only};

/// The values that enable all monitoring objects.
const ON: [&str; 2] = ["monitoring.rules.enabled=true", "monitoring.dashboards.enabled=true"];

pub(super) fn contain_the_files() {
    let injector = ("istio-sidecar-injector-dashboards", &["istio-sidecar-injector.json"][..]);
    let agent = ("istio-cni-dashboards", &["istio-cni-fleet.json", "istio-cni-node.json"][..]);
    for (chart, (name, dashboards)) in [(AGENT, agent), (INJECTOR, injector)] {
        let objects = chart.render(&ON);
        let rules = fs::read_to_string(format!("{DIRECTORY}/{}-rules.yaml", chart.name)).unwrap();
        let rules: Value = serde_saphyr::from_str(&rules).unwrap();
        assert_eq!(only(&objects, "PrometheusRule")["spec"], rules, "{}", chart.name);
        let maps = of_kind(&objects, "ConfigMap");
        let map = maps.into_iter().find(|map| map["metadata"]["name"] == name).unwrap();
        is_known(map);
        assert_eq!(map["metadata"]["labels"]["grafana_dashboard"], "1");
        let data = map["data"].as_object().unwrap();
        assert!(data.keys().eq(dashboards), "{:?}", data.keys());
        for (file, text) in data {
            assert!(fs::read_to_string(format!("{DIRECTORY}/{file}")).unwrap() == text.as_str().unwrap(), "{file}");
        }
    }
}

/// Each alert must have the URL of its section in docs/alerts.md, as an anchor on the page that a value names.
pub(super) fn alerts_lead_to_their_sections() {
    let page = "https://wiki.example.com/mesh/alerts.md?at=main";
    for chart in [AGENT, INJECTOR] {
        let objects = chart.render(&[ON[0], &format!("monitoring.rules.runbook={page:?}")]);
        let groups = only(&objects, "PrometheusRule")["spec"]["groups"].as_array().unwrap();
        let rules: Vec<&Value> = groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).collect();
        assert!(rules.len() > 8, "{rules:?}");
        for rule in rules {
            let section = rule["alert"].as_str().unwrap().to_lowercase();
            assert_eq!(rule["annotations"]["runbook_url"], format!("{page}#{section}"));
            assert_eq!(rule["annotations"]["docs"], format!("docs/alerts.md#{section}"));
        }
        let unnamed = only(&chart.render(&[ON[0]]), "PrometheusRule").to_string();
        assert!(!unnamed.contains("runbook_url"), "no URL is known");
    }
}

/// The labels and ports in a PodMonitor or ServiceMonitor must match those of the pods and the Service.
pub(super) fn monitors_select_the_pods() {
    let render = |chart: Chart, value: &str| {
        let objects = chart.render(&[value]);
        assert_eq!((of_kind(&objects, "PrometheusRule").len(), objects.len()), (0, chart.render(&[]).len() + 1));
        objects
    };
    let selects = |monitor: &Value, labels: &Value| {
        let wanted = monitor["spec"]["selector"]["matchLabels"].as_object().unwrap();
        assert!(!wanted.is_empty() && wanted.iter().all(|(key, value)| labels[key] == *value), "{wanted:?}: {labels}");
    };
    let objects = render(AGENT, "monitoring.podMonitor.enabled=true");
    let (monitor, template) = (only(&objects, "PodMonitor"), &only(&objects, "DaemonSet")["spec"]["template"]);
    selects(monitor, &template["metadata"]["labels"]);
    let endpoint = &monitor["spec"]["podMetricsEndpoints"][0];
    let ports = template["spec"]["containers"][0]["ports"].as_array().unwrap();
    let port = ports.iter().find(|port| port["name"] == endpoint["port"]).unwrap();
    let unmonitored = AGENT.render(&[]);
    let annotations = &only(&unmonitored, "DaemonSet")["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(port["containerPort"].to_string(), annotations["prometheus.io/port"].as_str().unwrap());
    assert_eq!(endpoint["relabelings"][0]["targetLabel"], "node");
    let objects = render(INJECTOR, "monitoring.serviceMonitor.enabled=true");
    let (monitor, service) = (only(&objects, "ServiceMonitor"), only(&objects, "Service"));
    selects(monitor, &service["metadata"]["labels"]);
    let port =
        service["spec"]["ports"].as_array().unwrap().iter().find(|port| port["targetPort"] == json!("monitoring"));
    assert_eq!(monitor["spec"]["endpoints"][0]["port"], port.unwrap()["name"]);
}
