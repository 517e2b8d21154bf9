//! Readers of the facts about policies and their targets.

use gc_collectors::objects::FactsError;
use gc_collectors::policies::roster::{Observation, Watch};
use gc_controller::watch::RequestEnd;
use serde_json::Value;

use super::News;
use crate::facts::{Accept, METADATA, NewsLine, NewsPage, Reader, WHOLE};
use crate::raw::{RawPage, map_object, raw_line, raw_page};
use crate::resources::Route;

/// Reads the policies themselves.
pub(super) struct PolicyReader {
    pub(super) route: Route,
}

impl Reader for PolicyReader {
    type News = News;

    fn route(&self) -> &Route {
        &self.route
    }

    fn accept(&self) -> Accept {
        WHOLE
    }

    fn started(&self) -> News {
        News::PoliciesStarted
    }

    fn synced(&self) -> News {
        News::PoliciesSynced
    }

    fn page(&self, json: &[u8]) -> Result<NewsPage<News>, FactsError> {
        let RawPage { resource_version, continue_token, items } = raw_page(json, &self.route.info)?;
        Ok(NewsPage {
            resource_version,
            continue_token,
            items: items.into_iter().map(News::Policy).collect(),
        })
    }

    fn line(&self, json: &[u8]) -> Result<(NewsLine<News>, String), FactsError> {
        let (line, version) = raw_line(json, &self.route.info)?;
        let line = map_object(line, |present, object| {
            if present {
                return News::Policy(object);
            }
            News::PolicyGone(object["metadata"]["name"].as_str().unwrap_or_default().to_owned())
        });
        Ok((line, version))
    }
}

/// Reads the target objects of some policies, and passes on only the facts that the policies derive from them.
pub(super) struct ObjectReader {
    pub(super) number: u64,
    pub(super) route: Route,
    pub(super) watch: Watch,
}

impl ObjectReader {
    fn news(&self, observation: Observation) -> News {
        News::Objects { watch: self.number, observation }
    }

    fn observed(&self, object: &Value) -> News {
        let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
        let looks = self.watch.looks(object);
        self.news(Observation::Observed { namespace: text("namespace"), name: text("name"), looks })
    }
}

impl Reader for ObjectReader {
    type News = News;

    fn route(&self) -> &Route {
        &self.route
    }

    fn accept(&self) -> Accept {
        if self.watch.target.whole { WHOLE } else { METADATA }
    }

    fn started(&self) -> News {
        self.news(Observation::ListStarted)
    }

    fn synced(&self) -> News {
        self.news(Observation::Synced)
    }

    fn failed(&self, why: &RequestEnd) -> Option<News> {
        Some(self.news(Observation::Failed(format!("{} cannot be listed: {why}", self.route.display_name()))))
    }

    fn page(&self, json: &[u8]) -> Result<NewsPage<News>, FactsError> {
        let RawPage { resource_version, continue_token, items } = raw_page(json, &self.route.info)?;
        Ok(NewsPage {
            resource_version,
            continue_token,
            items: items.iter().map(|item| self.observed(item)).collect(),
        })
    }

    fn line(&self, json: &[u8]) -> Result<(NewsLine<News>, String), FactsError> {
        let (line, version) = raw_line(json, &self.route.info)?;
        let line = map_object(line, |present, object| {
            if present {
                return self.observed(&object);
            }
            let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
            self.news(Observation::Removed { namespace: text("namespace"), name: text("name") })
        });
        Ok((line, version))
    }
}
