//! Builds the sidecar's command line, in the order of Dapr's injector.

use super::annotations::Options;
use super::settings::{Actors, Settings};

pub(super) const HTTP_PORT: i32 = 3500;
/// The port on which the sidecar answers health probes.
pub(super) const PUBLIC_PORT: i32 = 3501;
/// The directory in which the sidecar mounts the sockets that it shares with the application.
pub(super) const SOCKETS: &str = "/var/run/dapr-sockets";

/// A command line under construction.
pub(super) struct Args(pub(super) Vec<String>);

impl Args {
    pub(super) fn flag(&mut self, name: &str) {
        self.0.push(name.to_owned());
    }

    pub(super) fn flag_if(&mut self, name: &str, on: bool) {
        if on {
            self.flag(name);
        }
    }

    pub(super) fn option(&mut self, name: &str, value: impl Into<String>) {
        self.flag(name);
        self.0.push(value.into());
    }

    pub(super) fn number(&mut self, name: &str, value: impl Into<i64>) {
        self.option(name, value.into().to_string());
    }

    /// Adds the option unless the value is empty.
    fn text(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.option(name, value);
        }
    }

    /// Adds the option if there is a value.
    fn given(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.option(name, value);
        }
    }

    fn given_number(&mut self, name: &str, value: Option<i64>) {
        if let Some(value) = value {
            self.number(name, value);
        }
    }
}

/// Returns the command line without the program.
pub(super) fn of(id: &str, options: &Options<'_>, settings: &Settings, mtls: bool) -> Vec<String> {
    let mut args = Args(Vec::with_capacity(64));
    listening(&mut args, id, options);
    control_plane(&mut args, options, settings);
    services(&mut args, options, settings);
    application(&mut args, options, mtls);
    limits(&mut args, options);
    lifecycle(&mut args, options, settings);
    args.0
}

fn listening(args: &mut Args, id: &str, options: &Options<'_>) {
    args.number("--dapr-http-port", HTTP_PORT);
    args.number("--dapr-grpc-port", options.ports.grpc);
    args.number("--dapr-internal-grpc-port", options.ports.internal);
    args.option("--dapr-listen-addresses", options.listen_addresses);
    args.number("--dapr-public-port", PUBLIC_PORT);
    args.option("--app-id", id);
    args.option("--app-protocol", options.app.protocol);
    args.option("--log-level", options.log_level);
    args.number("--dapr-graceful-shutdown-seconds", options.graceful_seconds);
    args.option("--mode", "kubernetes");
}

fn control_plane(args: &mut Args, options: &Options<'_>, settings: &Settings) {
    args.option("--control-plane-address", settings.control_plane.address("dapr-api", 443));
    args.option("--sentry-address", settings.control_plane.address("dapr-sentry", 443));
    if options.app.port > 0 {
        args.number("--app-port", options.app.port);
    }
    if options.metrics {
        args.flag("--enable-metrics");
        args.number("--metrics-port", options.ports.metrics);
    }
    args.text("--config", options.config);
    args.text("--app-channel-address", options.app.channel_address);
}

/// Adds the addresses of the services for actors and reminders. The placement address in the pod's annotation takes
/// precedence even if it is empty, which disables placement.
fn services(args: &mut Args, options: &Options<'_>, settings: &Settings) {
    let (placement, service) = match &settings.actors {
        Actors::Off => ("", ""),
        Actors::Placement(address) => (address.as_str(), ""),
        Actors::Service(service) => ("", service.as_str()),
    };
    match options.placement.unwrap_or(placement) {
        "" => args.text("--actors-service", service),
        address => args.option("--placement-host-address", address),
    }
    args.text("--reminders-service", settings.reminders.as_deref().unwrap_or_default());
    args.text("--sentry-request-jwt-audiences", options.jwt_audiences);
}

fn application(args: &mut Args, options: &Options<'_>, mtls: bool) {
    if let Some(on) = options.api_logging {
        args.flag(&format!("--enable-api-logging={on}"));
    }
    args.flag_if("--disable-builtin-k8s-secret-store", options.no_secret_store);
    if let Some(health) = &options.app.health {
        args.flag("--enable-app-health-check");
        args.option("--app-health-check-path", health.path);
        args.number("--app-health-probe-interval", health.interval);
        args.number("--app-health-probe-timeout", health.timeout);
        args.number("--app-health-threshold", health.threshold);
    }
    args.given("--app-binding-options-timeout", options.app.binding_timeout);
    args.flag_if("--log-as-json", options.log_as_json);
    args.flag_if("--enable-profiling", options.profiling);
    args.flag_if("--enable-mtls", mtls);
    args.flag_if("--app-ssl", options.app.ssl);
    args.given_number("--app-max-concurrency", options.app.max_concurrency);
}

fn limits(args: &mut Args, options: &Options<'_>) {
    args.given_number("--dapr-http-max-request-size", options.sizes.http_max_request);
    args.text("--max-body-size", options.sizes.max_body);
    args.given_number("--dapr-http-read-buffer-size", options.sizes.http_read_buffer);
    args.text("--read-buffer-size", options.sizes.read_buffer);
    if !options.socket_path.is_empty() {
        args.option("--unix-domain-socket", SOCKETS);
    }
}

fn lifecycle(args: &mut Args, options: &Options<'_>, settings: &Settings) {
    args.given("--dapr-block-shutdown-duration", options.block_shutdown);
    args.given("--actors-disseminate-timeout", options.disseminate_timeout);
    let scheduler = settings.scheduler.then(|| settings.control_plane.address("dapr-scheduler-server-a", 443));
    args.given("--scheduler-host-address", options.scheduler.or(scheduler.as_deref()));
    args.given("--disable-init-endpoints", options.disable_init_endpoints);
}

/// Returns the debugger's arguments that precede the sidecar's command line.
pub(super) fn debugger(listen: Vec<String>) -> Vec<String> {
    let rest = ["--accept-multiclient", "--headless=true", "--log", "--api-version=2", "exec", "/daprd", "--"];
    listen.into_iter().chain(rest.map(str::to_owned)).collect()
}
