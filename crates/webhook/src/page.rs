//! Renders a server's status report as HTML. Pure; every value is escaped, because names and reasons come from pods.

use serve::http::Response;
use serve::page::{self, Escaped, section, table, terms, timed_row, to_seconds, utc};

use super::report::{Certificate, CertificateReport, Loaded, Report, Reviews};
use super::warnings::clipped;

/// The length limit of a pod's name on a page, in characters; the document has the whole name.
const LONGEST_POD: usize = 120;
/// The length limit of a refusal's reason on a page, in characters.
const LONGEST_REASON: usize = 200;

/// Returns the response with the page of a report.
pub(super) fn respond(report: &Report) -> Response {
    page::page(&format!("Sidecar injector, revision {}", report.revision), &body(report))
}

fn body(report: &Report) -> String {
    let mut html = String::with_capacity(64 << 10);
    let state = [
        ("Version", report.version.clone()),
        ("Started", utc(&report.started)),
        ("Report", utc(&report.time)),
        ("Revision", report.revision.clone()),
        ("Paths", report.paths.join(", ")),
    ];
    html.push_str(&page::state(&report.problems(), &state));
    html.push_str(&configuration(&report.configuration));
    html.push_str(&certificates(&report.certificates));
    html.push_str(&counts(&report.reviews));
    html.push_str(&refusals(&report.reviews));
    html.push_str(&slowest(&report.reviews));
    html
}

fn configuration(configuration: &Loaded) -> String {
    section("configuration", "Configuration", "", &terms(&loaded(configuration)), str::to_owned)
}

fn loaded(part: &Loaded) -> Vec<(&'static str, String)> {
    let loaded = utc(part.loaded.as_deref().unwrap_or("not yet"));
    let fault = part.fault.as_ref().map(|fault| ("Fault", format!("{}: {}", utc(&fault.time), fault.text)));
    [("Source", part.sources.join(", ")), ("Loaded", loaded)].into_iter().chain(fault).collect()
}

fn certificates(report: &CertificateReport) -> String {
    let callers = match &report.callers {
        Some(file) => format!("required, from an authority in file {file}"),
        None => "not required".to_owned(),
    };
    let mut list = loaded(&report.source);
    list.push(("Client certificates", callers));
    let bundles = match &report.bundles {
        None => row("caBundles", "", "", "another program manages them"),
        Some(all) if all.is_empty() => row("caBundles", "", "warn", "not known yet"),
        Some(all) => {
            let one = |bundle: &super::report::Bundle| {
                let what = format!("caBundles of webhook configurations {}", bundle.selection);
                match &bundle.fault {
                    None => row(&what, "", "good", "trust the presented certificate"),
                    Some(fault) => row(&what, "", "bad", fault),
                }
            };
            all.iter().map(one).collect()
        }
    };
    let rows = match (&report.presented, &report.next) {
        (None, None) => row("Certificate", "", "bad", "there is none yet"),
        (presented, next) => {
            let waits = "not presented yet, because not all caBundles trust it for long enough";
            let since =
                |one: &Certificate| format!("presented since {}", utc(one.since.as_deref().unwrap_or_default()));
            let presented = presented.iter().map(|one| lifetimes("Presented certificate", one, &since(one)));
            presented.chain(next.iter().map(|one| lifetimes("Newest certificate", one, waits))).collect()
        }
    };
    section("certificates", "Certificates", "", &(rows + &bundles), |rows| {
        let caption = "Ends of certificates and authorities, and what the caBundles trust";
        terms(&list) + &table("certificates-table", caption, &["Part", "Ends", "State"], rows)
    })
}

/// Returns the table rows of a certificate and its authorities.
fn lifetimes(what: &str, certificate: &Certificate, state: &str) -> String {
    let (class, state) = if certificate.ended { ("bad", "ended") } else { ("", state) };
    let ends = certificate.ends.as_deref().unwrap_or("not known");
    let authority = |end: &String| row("Its authority", end, "", "part of the caBundle");
    row(what, ends, class, state) + &certificate.authorities.iter().map(authority).collect::<String>()
}

fn row(what: &str, end: &str, class: &str, state: &str) -> String {
    let class = if class.is_empty() { String::new() } else { format!(" class={class}") };
    let (what, end, state) = (Escaped(what), Escaped(to_seconds(end)), Escaped(state));
    format!("<tr><th scope=row>{what}<td class=num>{end}<td{class}>{state}")
}

fn counts(reviews: &Reviews) -> String {
    let rows = reviews.counts.iter().map(|count| {
        let (decision, rule) = (Escaped(&count.decision), Escaped(&count.rule));
        format!("<tr><th scope=row>{decision}<td>{rule}<td class=num>{}", count.number)
    });
    section("reviews", "Reviews by rule", "No review has come since the start.", &rows.collect::<String>(), |rows| {
        let caption = "Numbers of reviews since the start, by decision and rule";
        table("reviews-table", caption, &["Decision", "Rule", "Reviews"], rows)
    })
}

fn refusals(reviews: &Reviews) -> String {
    let rows = reviews.refusals.iter().map(|one| {
        timed_row(&[&one.time, &clipped(&one.pod, LONGEST_POD), &one.rule, &clipped(&one.reason, LONGEST_REASON)])
    });
    section("refusals", "Latest refusals", "No pod was refused.", &rows.collect::<String>(), |rows| {
        let caption = format!("Pods that were refused, the latest one first; since the start: {}", reviews.refused);
        table("refusals-table", &caption, &["Time", "Pod", "Rule", "Reason"], rows)
    })
}

fn slowest(reviews: &Reviews) -> String {
    let rows = reviews.slowest.iter().map(|one| {
        let (pod, took) = (clipped(&one.pod, LONGEST_POD), format!("{:.1}", one.seconds * 1e3));
        timed_row(&[&one.time, &pod, &took, &one.decision, &one.rule])
    });
    section("slowest", "Slowest reviews", "No review has come since the start.", &rows.collect::<String>(), |rows| {
        let caption = "Reviews with the longest duration since the start";
        table("slowest-table", caption, &["Time", "Pod", "ms", "Decision", "Rule"], rows)
    })
}

#[cfg(test)]
mod tests {
    use hyper::body::Body as _;

    use super::super::activity::{REFUSALS, SLOWEST};
    use super::super::report::{Bundle, Count, Fault, Refusal, SlowReview};
    use super::*;

    const HOSTILE: &str = "</td><script>alert(1)</script>\u{1b}[2J\" onload=\"x";

    fn hostile() -> Report {
        let text = || HOSTILE.to_owned();
        let part =
            Loaded { sources: vec![text()], loaded: Some(text()), fault: Some(Fault { time: text(), text: text() }) };
        let certificate =
            Certificate { since: Some(text()), ends: Some(text()), authorities: vec![text()], ended: false };
        Report {
            version: text(),
            time: text(),
            started: text(),
            revision: text(),
            paths: vec![text()],
            not_ready: vec![text()],
            configuration: part.clone(),
            certificates: CertificateReport {
                source: part,
                presented: Some(certificate.clone()),
                next: Some(certificate),
                callers: Some(text()),
                bundles: Some(vec![Bundle { selection: text(), fault: Some(text()) }]),
            },
            reviews: Reviews {
                counts: vec![Count { decision: text(), rule: text(), number: 1 }],
                slowest: vec![SlowReview { time: text(), pod: text(), seconds: 1.0, decision: text(), rule: text() }],
                refusals: vec![Refusal { time: text(), pod: text(), rule: text(), reason: text() }],
                refused: 1,
            },
        }
    }

    #[test]
    fn every_text_is_escaped() {
        let html = body(&hostile());
        assert!(html.contains("&lt;script&gt;alert(1)"), "{html}");
        for raw in ["<script", "\u{1b}", "\" onload"] {
            assert!(!html.contains(raw), "{raw:?} in\n{html}");
        }
    }

    #[test]
    fn a_page_says_where_there_is_nothing_and_what_is_wrong() {
        let html = body(&Report::default());
        for part in [
            "✓ All is well.",
            "<dt>Loaded<dd>not yet",
            "<dt>Client certificates<dd>not required",
            "<th scope=row>Certificate<td class=num><td class=bad>there is none yet",
            "another program manages them",
            "No pod was refused.",
        ] {
            assert!(html.contains(part), "{part:?} in\n{html}");
        }
        let mut report = Report { not_ready: vec!["certificate: starting".into()], ..Report::default() };
        let ends = Some("2026-01-01T00:00:00Z".to_owned());
        report.certificates.presented = Some(Certificate { ends, ended: true, ..Certificate::default() });
        report.certificates.bundles = Some(vec![Bundle { selection: "named x".into(), fault: None }]);
        let html = body(&report);
        for part in [
            "✗ Not all is well.",
            "<li>not ready: certificate: starting",
            "<th scope=row>Presented certificate<td class=num>2026-01-01T00:00:00<td class=bad>ended",
            "configurations named x<td class=num><td class=good>trust the presented certificate",
        ] {
            assert!(html.contains(part), "{part:?} in\n{html}");
        }
    }

    #[test]
    fn a_page_of_all_remembered_entries_is_small() {
        assert_eq!(SLOWEST + REFUSALS, 250);
        let time = || "2026-01-01T00:00:00.123456789Z".to_owned();
        let pod = |number: usize| format!("production-shop/recommendations-{:08x}-{number:05}", 0x5bd1_e995_u32);
        let reason = "x".repeat(300);
        let refusal = |number| Refusal { time: time(), pod: pod(number), rule: "error".into(), reason: reason.clone() };
        let slow = |number| SlowReview {
            time: time(),
            pod: pod(number),
            seconds: 0.0123,
            decision: "inject".into(),
            rule: "namespace_label".into(),
        };
        let reviews = Reviews {
            slowest: (0..SLOWEST).map(slow).collect(),
            refusals: (0..REFUSALS).map(refusal).collect(),
            ..Reviews::default()
        };
        let report = Report { reviews, ..Report::default() };
        let response = respond(&report);
        let size = response.body().size_hint().exact().unwrap();
        assert!(size < 100_000, "{size} bytes");
    }
}
