//! The manifests and the charts: that they are the same, ask for no right without a reason, and say nothing that the
//! programs do not understand; and the image that they name.
//!
//! The real helm renders the charts, and the real promtool checks alerts. Where one is missing, its trials are ignored with that
//! reason.

#![expect(clippy::disallowed_methods, reason = "tests run programs and read files")]
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod agent;
mod arguments;
mod chart;
mod helm;
mod injector;
mod istio;
mod monitoring;
mod objects;
mod rights;
mod shipped;
mod tool;
mod values;

use libtest_mimic::{Arguments, Trial};
use test_support::tier;

use crate::tool::HELM;

fn main() {
    let always: [(&str, fn()); 11] = [
        ("manifests/arguments_are_understood", arguments::of_the_manifests),
        ("manifests/rights_have_reasons", rights::of_the_manifests),
        ("image/is_what_its_programs_are_built_for", shipped::is_what_its_programs_are_built_for),
        ("image/is_the_one_that_manifests_name", shipped::is_the_one_that_manifests_name),
        ("manifests/fields_are_kubernetes_own", objects::fields_are_known),
        ("injector/arguments_are_understood", injector::arguments::of_the_manifests),
        ("injector/rights_have_reasons", injector::rights::of_the_manifests),
        ("injector/pods_are_selected_as_istio_does", injector::selectors::of_the_manifests),
        ("injector/names_meet", injector::life::names_meet),
        ("injector/installations_do_not_meet", injector::life::installations_do_not_meet),
        ("injector/one_always_answers", injector::life::one_always_answers),
    ];
    let rendered: [(&str, fn()); 24] = [
        ("chart/render_the_manifests", values::render_the_manifests),
        ("chart/every_value_has_an_effect", chart::every_value_has_an_effect),
        ("chart/values_outrank_platforms", chart::values_outrank_platforms),
        ("chart/what_cannot_be_is_refused", chart::what_cannot_be_is_refused),
        ("chart/values_of_other_charts_are_passed_over", chart::values_of_other_charts_are_passed_over),
        ("chart/given_values_outrank_profiles", chart::given_values_outrank_profiles),
        ("chart/variables_outrank_values", chart::variables_outrank_values),
        ("chart/platforms_have_their_directories", chart::platforms_have_their_directories),
        ("chart/openshift_gets_its_own_kinds", chart::openshift_gets_its_own_kinds),
        ("chart/upgrades_overlap_unless_told_otherwise", chart::upgrades_overlap_unless_told_otherwise),
        ("chart/scopes_part_the_objects", chart::scopes_part_the_objects),
        ("chart/policies_fit_the_api_server", chart::policies_fit_the_api_server),
        ("chart/the_network_policy_names_who_may_scrape", chart::the_network_policy_names_who_may_scrape),
        ("chart/only_values_make_a_network_policy", chart::only_values_make_a_network_policy),
        ("chart/arguments_are_understood", arguments::of_the_chart),
        ("chart/modes_are_the_programs", arguments::modes_are_the_programs),
        ("chart/rights_follow_the_mode", rights::of_the_chart),
        ("injector/every_value_has_an_effect", injector::every_value_has_an_effect),
        ("injector/the_network_policy_names_who_may_connect", injector::the_network_policy_names_who_may_connect),
        ("injector/what_cannot_be_is_refused", injector::what_cannot_be_is_refused),
        ("injector/arguments_of_the_chart_are_understood", injector::arguments::of_the_chart),
        ("injector/rights_follow_the_values", injector::rights::of_the_chart),
        ("injector/revisions_select_their_own", injector::selectors::of_the_chart),
        ("injector/dapr_reviews_what_is_annotated", injector::selectors::of_dapr),
    ];
    let always = always.into_iter().map(|(name, body)| {
        Trial::test(name, move || {
            body();
            Ok(())
        })
    });
    let rendered = rendered.into_iter().map(|(name, body)| HELM.trial(name, body));
    let trials = always.chain(rendered).chain(istios_cases()).chain(monitoring::trials()).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// A trial for each case of the corpus, and two for the corpus as a whole.
fn istios_cases() -> Vec<Trial> {
    let Some(corpus) = istio::corpus() else {
        return vec![tier::without_corpus("istio_chart", &tier::corpus_directory().join("chart.json"))];
    };
    let case = |name: &'static str| HELM.trial(&format!("istio_chart/{name}"), move || corpus.check(name));
    let whole = [
        HELM.trial("istio_chart/every_key_is_known", || corpus.every_key_is_known()),
        HELM.trial("istio_chart/every_difference_is_needed", || corpus.every_difference_is_needed()),
    ];
    corpus.names().map(case).chain(whole).collect()
}
