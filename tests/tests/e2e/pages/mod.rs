//! What people look at, in the tools that they use: the page in Chromium, dashboards and rules in Prometheus 2 and 3.
//! `./dev test pages` runs these tests.

mod browser;
mod dashboards;
mod exposition;
mod grafana;
mod report;
mod rules;
