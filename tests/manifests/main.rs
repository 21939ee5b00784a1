//! Tests of manifests, charts and image: the charts render the manifests, each right has a reason, and the programs
//! accept all arguments and variables.
//!
//! helm renders the charts and promtool checks the alerts. A trial whose program is missing is ignored with the reason.

#![expect(clippy::disallowed_methods, reason = "tests run programs and read files")]
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod agent;
mod arguments;
mod chart;
mod given;
mod helm;
mod injector;
mod istio;
mod monitoring;
mod objects;
mod rights;
mod schema;
mod shipped;
mod tool;
mod values;

use libtest_mimic::{Arguments, Trial};

use crate::tool::HELM;

fn main() {
    let always: [(&str, fn()); 10] = [
        ("manifests/arguments_are_understood", arguments::of_the_manifests),
        ("manifests/rights_have_reasons", rights::of_the_manifests),
        ("image/is_what_its_programs_are_built_for", shipped::is_what_its_programs_are_built_for),
        ("image/is_the_one_that_manifests_name", shipped::is_the_one_that_manifests_name),
        ("manifests/fields_are_kubernetes_own", objects::fields_are_known),
        ("injector/arguments_are_understood", injector::arguments::of_the_manifests),
        ("injector/rights_have_reasons", injector::rights::of_the_manifests),
        ("injector/pods_are_selected_as_istio_does", injector::selectors::of_the_manifests),
        ("injector/references_match_names", injector::life::references_match_names),
        ("injector/one_replica_is_always_available", injector::life::one_replica_is_always_available),
    ];
    let rendered: [(&str, fn()); 39] = [
        ("injector/installations_share_no_objects", injector::life::installations_share_no_objects),
        ("chart/render_the_manifests", values::render_the_manifests),
        ("chart/every_value_has_an_effect", chart::every_value_has_an_effect),
        ("chart/directories_are_found_or_compared", chart::directories_are_found_or_compared),
        ("chart/values_outrank_platforms", chart::values_outrank_platforms),
        ("chart/invalid_values_are_refused", chart::invalid_values_are_refused),
        ("chart/values_of_other_charts_are_ignored", chart::values_of_other_charts_are_ignored),
        ("chart/given_values_outrank_profiles", chart::given_values_outrank_profiles),
        ("chart/variables_outrank_values", chart::variables_outrank_values),
        ("chart/platforms_have_their_directories", chart::platforms_have_their_directories),
        ("chart/openshift_gets_its_own_kinds", chart::openshift_gets_its_own_kinds),
        ("chart/upgrades_overlap_by_default", chart::upgrades_overlap_by_default),
        ("chart/resource_scopes_divide_the_objects", chart::resource_scopes_divide_the_objects),
        ("chart/policies_fit_the_api_server", chart::policies_fit_the_api_server),
        ("chart/the_network_policy_limits_scrapers", chart::the_network_policy_limits_scrapers),
        ("chart/network_policies_are_off_by_default", chart::network_policies_are_off_by_default),
        ("chart/arguments_are_understood", arguments::of_the_chart),
        ("chart/modes_are_the_programs", arguments::modes_are_the_programs),
        ("chart/rights_follow_the_mode", rights::of_the_chart),
        ("chart/apparmor_is_a_field_from_1_30_on", chart::apparmor_is_a_field_from_1_30_on),
        ("chart/nodes_are_selected", chart::nodes_are_selected),
        ("schema/names_are_refused_at_each_depth", schema::names_are_refused_at_each_depth),
        ("schema/values_of_another_form_are_refused", schema::values_of_another_form_are_refused),
        ("schema/istios_values_are_accepted", schema::istios_values_are_accepted),
        ("schema/values_of_a_former_release_suffice", schema::values_of_a_former_release_suffice),
        ("schema/objects_have_the_standard_labels", schema::objects_have_the_standard_labels),
        ("schema/monitors_replace_annotations", schema::monitors_replace_annotations),
        ("given/by_a_parent_chart", given::by_a_parent_chart),
        ("given/under_names_of_defaults", given::under_names_of_defaults),
        ("given/beside_global_values_of_other_charts", given::beside_global_values_of_other_charts),
        ("given/as_text_or_without_quotes", given::as_text_or_without_quotes),
        ("given/as_large_numbers", given::as_large_numbers),
        ("injector/every_value_has_an_effect", injector::every_value_has_an_effect),
        ("injector/the_network_policy_limits_clients", injector::the_network_policy_limits_clients),
        ("injector/invalid_values_are_refused", injector::invalid_values_are_refused),
        ("injector/arguments_of_the_chart_are_understood", injector::arguments::of_the_chart),
        ("injector/rights_follow_the_values", injector::rights::of_the_chart),
        ("injector/revisions_select_their_own", injector::selectors::of_the_chart),
        ("injector/dapr_selects_pods_by_annotation", injector::selectors::of_dapr),
    ];
    let always = always.into_iter().map(|(name, body)| {
        Trial::test(name, move || {
            body();
            Ok(())
        })
    });
    let rendered = rendered.into_iter().map(|(name, body)| HELM.trial(name, body));
    let trials = always.chain(rendered).chain(corpus_trials()).chain(monitoring::trials()).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Returns a trial for each case of the corpus, and two for the corpus as a whole.
fn corpus_trials() -> Vec<Trial> {
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
