//! A plan: for each kind of tensor and each link what raw and the ways of coding take, and what to choose.

use serde::{Serialize, Serializer};

use crate::error::Result;
use crate::model::{
    Choice, Forecast, Hosts, Link, Overlap, Payload, Rates, break_even, choose, forecast, forecast_raw,
};

/// The links of a plan if none is stated, in bytes a second: 10 and 100 Mb/s, 1, 10 and 100 Gb/s.
const USUAL: [f64; 5] = [1.25e6, 12.5e6, 125e6, 1.25e9, 12.5e9];

/// Links from a phone's to a data centre's.
pub fn usual_links() -> Result<Vec<Link>> {
    USUAL.iter().map(|&rate| Link::new(rate)).collect()
}

/// What to send how.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Plan {
    /// The two ends.
    pub hosts: Hosts,
    /// The kinds of tensors.
    pub kinds: Vec<KindPlan>,
    /// Runs beside their forecasts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    /// What a reader should know of the numbers.
    pub notes: Vec<String>,
}

/// What to do with one kind of tensors.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct KindPlan {
    /// Dtype, and what the tensors are.
    pub name: String,
    /// How many there are.
    pub tensors: usize,
    /// What is sent.
    pub payload: Payload,
    /// The ways of coding.
    pub ways: Vec<WayPlan>,
    /// What follows for each link.
    pub links: Vec<LinkPlan>,
}

/// A way of coding one kind.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct WayPlan {
    /// What was measured or stated.
    #[serde(flatten)]
    pub rates: Rates,
    /// Bytes of the tensors over bytes on the link.
    pub ratio: f64,
    /// Bytes of the tensors a second that all workers encode.
    pub encode_rate: f64,
    /// Bytes of the tensors a second that all workers decode.
    pub decode_rate: f64,
    /// Bytes a second of the link below which it is faster than raw; none if it never is, infinite if it always is (in JSON
    /// `"never"` and `"always"`).
    #[serde(serialize_with = "finite")]
    pub break_even: Option<f64>,
}

/// What follows for one link.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct LinkPlan {
    /// The link.
    pub link: Link,
    /// Raw.
    pub raw: Forecast,
    /// Each way with stages that overlap.
    pub pipelined: Vec<Forecast>,
    /// Each way with one stage after the other.
    pub serial: Vec<Forecast>,
    /// What to do.
    pub choice: Choice,
}

/// A run beside its forecast.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Check {
    /// The kind of tensors.
    pub kind: String,
    /// Bytes of the tensors.
    pub bytes: u64,
    /// Bandwidth of the link, in bytes a second.
    pub bytes_per_second: f64,
    /// How they were sent.
    pub way: String,
    /// Whether that is what the plan chooses.
    pub chosen: bool,
    /// Seconds, as forecast.
    pub forecast: f64,
    /// Seconds, as measured.
    pub measured: f64,
    /// Measured over forecast, less one.
    pub off: f64,
}

impl Check {
    /// Compares a run with its forecast.
    pub fn new(
        kind: &str,
        way: &str,
        chosen: bool,
        link: &Link,
        bytes: u64,
        forecast: f64,
        measured: f64,
    ) -> Check {
        Check {
            kind: kind.to_owned(),
            bytes,
            bytes_per_second: link.bytes_per_second,
            way: way.to_owned(),
            chosen,
            forecast,
            measured,
            off: measured / forecast.max(1e-9) - 1.0,
        }
    }

    /// Whether the forecast is as near as the choice takes it to be.
    pub fn is_near(&self) -> bool {
        self.off.abs() <= crate::model::MARGIN - 1.0
    }
}

impl Plan {
    /// A plan without kinds.
    pub fn new(hosts: Hosts) -> Plan {
        Plan { hosts, kinds: Vec::new(), checks: Vec::new(), notes: Vec::new() }
    }

    /// Adds a kind and works out what follows for each link.
    pub fn add(&mut self, name: &str, tensors: usize, payload: Payload, ways: Vec<Rates>, links: &[Link]) {
        let hosts = self.hosts;
        let one = |link: &Link| LinkPlan {
            link: *link,
            raw: forecast_raw(link, &payload, &hosts),
            pipelined: ways.iter().map(|w| forecast(link, &payload, w, &hosts, Overlap::Pipelined)).collect(),
            serial: ways.iter().map(|w| forecast(link, &payload, w, &hosts, Overlap::Serial)).collect(),
            choice: choose(link, &payload, &ways, &hosts),
        };
        let found = links.iter().map(one).collect();
        let ways = ways.into_iter().map(|way| WayPlan::new(way, &payload, &hosts, links)).collect();
        self.kinds.push(KindPlan { name: name.to_owned(), tensors, payload, ways, links: found });
    }
}

impl WayPlan {
    fn new(rates: Rates, payload: &Payload, hosts: &Hosts, links: &[Link]) -> WayPlan {
        let (_, chunk) = payload.chunks();
        let workers = |cores: usize| if rates.workers == 0 { cores as f64 } else { rates.workers as f64 };
        let rate = |seconds: f64, cores| chunk * workers(cores) / seconds.max(1e-12);
        WayPlan {
            ratio: rates.ratio(chunk),
            encode_rate: rate(rates.encode.seconds(chunk), hosts.sender),
            decode_rate: rate(rates.decode.seconds(chunk), hosts.receiver),
            // The bandwidth is what is looked for; latency counts for raw and coded alike.
            break_even: links.first().and_then(|link| break_even(link, payload, &rates, hosts)),
            rates,
        }
    }
}

impl KindPlan {
    /// Name of what a link's choice is.
    pub fn chosen(&self, link: &LinkPlan) -> String {
        let Some(way) = link.choice.way else { return "raw".into() };
        let name = &self.ways[way].rates.name;
        match link.choice.coded {
            Some(share) => lanes_name(name, share),
            None => name.clone(),
        }
    }
}

/// Name of a way that goes for a share of the bytes.
pub fn lanes_name(way: &str, coded: f64) -> String {
    format!("{:.0} % {way}, the rest raw", 100.0 * coded)
}

/// JSON has no infinity: `"always"`, and `"never"` for none.
fn finite<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        None => serializer.serialize_str("never"),
        Some(value) if value.is_infinite() => serializer.serialize_str("always"),
        Some(value) => serializer.serialize_f64(*value),
    }
}
