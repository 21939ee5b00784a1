//! Renders a template of a Helm chart: `.Values` and `.Release`, `include`-like definitions, and Helm's `required`.

#![expect(clippy::print_stdout, reason = "prints the manifest")]

use gotemplate::{Budget, Delims, Error, Functions, Reason, Record, Template, Value, write_yaml};

const TEMPLATE: &str = r#"{{- define "labels" }}app: {{ .Release.Name }}{{ end -}}
kind: Service
metadata:
  name: {{ required "a name is required" .Values.name | trunc 63 }}
  labels: { {{ template "labels" . }} }
spec:
  ports:
{{- range $name, $port := .Values.ports }}
  - { name: {{ $name }}, port: {{ $port }} }
{{- end }}
  selector:
{{- toYaml .Values.selector | trim | nindent 4 }}
"#;

fn functions() -> Functions {
    let required = |message: &str| Reason::Refused(message.to_owned());
    Functions::go()
        .with_sprig()
        .with("toYaml", 1, 1, |budget, args| Ok(Value::from(write_yaml(args.any(0), budget)?)))
        .with("required", 2, 2, move |_, args| match args.any(1) {
            value if value.is_true() => Ok(value.clone()),
            _ => Err(required(args.str(0)?)),
        })
}

fn main() -> Result<(), Error> {
    let values = serde_json::json!({ "name": "web", "ports": { "http": 80 }, "selector": { "app": "web" } });
    let release = Record::value("Release", vec![("Name", Value::from("shop"))]);
    let data = Record::value("data", vec![("Release", release), ("Values", Value::json(&values))]);
    let template = Template::parse("service.yaml", TEMPLATE, Delims::BRACES, &functions())?;
    print!("{}", template.render(&data, &mut Budget::default())?);
    Ok(())
}
