//! Tests of the dashboards for Grafana.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::expression::Expression;
use super::files;
use super::known::Named;
use super::rules::promtool;

/// The schema version of Grafana 10.0, the oldest supported version; later ones migrate the file.
const SCHEMA: u64 = 38;
/// The number of columns of Grafana's grid.
const COLUMNS: u64 = 24;

/// Returns the dashboards with the stems of their file names.
fn dashboards() -> Vec<(String, Value)> {
    let parse = |(path, text): (std::path::PathBuf, String)| {
        let value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (path.file_stem().unwrap().to_str().unwrap().to_owned(), value)
    };
    let found: Vec<_> = files(".json").into_iter().map(parse).collect();
    assert_eq!(found.len(), 3, "{found:?}");
    found
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns the panels of a dashboard, except rows.
fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    list(&dashboard["panels"]).iter().filter(|panel| panel["type"] != "row")
}

fn variables(dashboard: &Value) -> &[Value] {
    list(&dashboard["templating"]["list"])
}

pub(super) fn can_be_loaded() {
    for (name, dashboard) in dashboards() {
        // The file's name is unique in its directory, so a uid that is equal to it is unique, too.
        assert_eq!((&dashboard["uid"], &dashboard["schemaVersion"]), (&name.clone().into(), &SCHEMA.into()), "{name}");
        assert_eq!(dashboard.get("id"), None, "{name}: Grafana gives the id");
        let kinds: Vec<&str> = variables(&dashboard).iter().map(|variable| text(&variable["type"])).collect();
        assert_eq!((kinds[0], &kinds[1..]), ("datasource", &*vec!["query"; kinds.len() - 1]), "{name}");
        let all = list(&dashboard["panels"]);
        let ids: BTreeSet<u64> = all.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
        assert_eq!(ids.len(), all.len(), "{name}: two panels have one id");
        for (at, panel) in all.iter().enumerate() {
            let title = text(&panel["title"]);
            assert!(area(panel).right <= COLUMNS, "{name}: {title} is outside of the grid");
            let over = all[..at].iter().find(|other| area(panel).overlaps(&area(other)));
            assert!(over.is_none(), "{name}: {title} overlaps {}", text(&over.unwrap()["title"]));
        }
    }
}

struct Area {
    left: u64,
    right: u64,
    top: u64,
    bottom: u64,
}

impl Area {
    fn overlaps(&self, other: &Self) -> bool {
        self.left < other.right && other.left < self.right && self.top < other.bottom && other.top < self.bottom
    }
}

fn area(panel: &Value) -> Area {
    let of = |key: &str| panel["gridPos"][key].as_u64().unwrap();
    Area { left: of("x"), right: of("x") + of("w"), top: of("y"), bottom: of("y") + of("h") }
}

pub(super) fn panels_are_described() {
    for (name, dashboard) in dashboards() {
        let mut titles = BTreeSet::new();
        for panel in panels(&dashboard) {
            let (title, description) = (text(&panel["title"]), text(&panel["description"]));
            assert!(!title.is_empty() && titles.insert(title), "{name}: two panels are called {title:?}");
            assert!(description.len() > 30 && description.ends_with('.'), "{name}: {title}: {description:?}");
            assert!(!text(&panel["fieldConfig"]["defaults"]["unit"]).is_empty(), "{name}: {title} has no unit");
            let targets = list(&panel["targets"]);
            assert!(!targets.is_empty(), "{name}: {title} shows nothing");
            for source in targets.iter().chain([panel]).map(|of| &of["datasource"]["uid"]) {
                assert_eq!(source, "${datasource}", "{name}: {title}");
            }
        }
    }
}

/// Checks the expressions with promtool as recording rules, with a range in place of Grafana's variable.
pub(super) fn expressions_are_valid() {
    let dashboards = dashboards();
    let targets =
        dashboards.iter().flat_map(|(_, dashboard)| panels(dashboard)).flat_map(|panel| list(&panel["targets"]));
    let expressions = targets.map(|target| text(&target["expr"]).replace("$__rate_interval", "5m"));
    let rule = |(at, expr): (usize, String)| json!({ "record": format!("panel:{at}"), "expr": expr });
    let rules: Vec<Value> = expressions.enumerate().map(rule).collect();
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    std::fs::write(file.path(), json!({ "groups": [{ "name": "panels", "rules": rules }] }).to_string()).unwrap();
    promtool(["check", "rules", "--lint=none", file.path().to_str().unwrap()].into_iter());
}

/// Returns every expression in the dashboards, including those of their variables.
pub(super) fn named() -> Vec<Named> {
    let mut all = Vec::new();
    for (name, dashboard) in dashboards() {
        let variables = variables(&dashboard);
        let names: Vec<String> = variables.iter().map(|variable| format!("\"${}\"", text(&variable["name"]))).collect();
        for variable in variables.iter().filter(|variable| variable["type"] == "query") {
            let query =
                text(&variable["query"]["query"]).strip_prefix("label_values(").unwrap().strip_suffix(')').unwrap();
            let (expression, label) = query.rsplit_once(", ").unwrap();
            let place = format!("{name}: the variable {}", text(&variable["name"]));
            all.push(Named { place, expression: Expression::parse(expression), texts: vec![label.to_owned()] });
        }
        for panel in panels(&dashboard) {
            for target in list(&panel["targets"]) {
                let (place, expression) = (format!("{name}: {}", text(&panel["title"])), text(&target["expr"]));
                let unknown = expression.split('=').filter_map(|part| part.strip_prefix("~\"$"));
                let mut unknown = unknown.map(|part| format!("\"${}\"", part.split('"').next().unwrap()));
                assert_eq!(unknown.find(|variable| !names.contains(variable)), None, "{place}: no such variable");
                let legend = text(&target["legendFormat"]).split("{{").skip(1);
                let texts = legend.map(|part| part.split("}}").next().unwrap().trim().to_owned()).collect();
                all.push(Named { place, expression: Expression::parse(expression), texts });
            }
        }
    }
    assert!(all.len() > 60, "{}", all.len());
    all
}
