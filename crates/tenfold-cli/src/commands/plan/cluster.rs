//! `tenfold plan cluster`.

use std::path::Path;

use tenfold_plan::cluster::{
    Budget, Inputs, PERFORMANCE, Study, Work, cluster_page, energy_chart, performance_chart,
};

use super::write;
use crate::args::{ClusterArgs, WorkloadArg};
use crate::exit::{self, Usage};
use crate::print;
use crate::table::Table;

pub(super) fn run(args: &ClusterArgs) -> anyhow::Result<u8> {
    if args.print_inputs {
        print::out(Inputs::text())?;
        return Ok(exit::SUCCESS);
    }
    let mut inputs = match &args.inputs {
        Some(path) => read(path)?,
        None => Inputs::llama_7b()?,
    };
    if args.area / inputs.gpu.area > 10_000.0 {
        return Err(Usage("--area has room for more than 10,000 GPUs: state less".into()).into());
    }
    inputs.cores.pj_encode = args.pj_encode.or(inputs.cores.pj_encode);
    inputs.cores.pj_decode = args.pj_decode.or(inputs.cores.pj_decode);
    let work = match args.workload {
        WorkloadArg::Training => Work::Training,
        WorkloadArg::Inference => Work::Inference,
    };
    let study = Study::new(inputs, work, Budget { area: args.area, power: args.power });
    if study.fronts[0].points.is_empty() {
        return Err(
            Usage("the model fits into no cluster within this area and power: state more".into()).into()
        );
    }
    if let Some(path) = &args.html {
        write(path, &cluster_page(&study))?;
    }
    if let Some(path) = &args.svg {
        let named = |what: &str| {
            let mut name = path.with_extension("").into_os_string();
            name.push(format!("-{what}.svg"));
            name
        };
        write(Path::new(&named("performance")), &performance_chart(&study))?;
        write(Path::new(&named("energy")), &energy_chart(&study))?;
    }
    if args.json {
        print::json(&study)?;
    } else {
        print::out(&show(&study))?;
    }
    Ok(exit::SUCCESS)
}

fn read(path: &Path) -> anyhow::Result<Inputs> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| anyhow::Error::new(e).context(path.display().to_string()))?;
    Ok(Inputs::parse(&text)?)
}

fn show(study: &Study) -> String {
    let or_dash = |value: Option<f64>| print::or_dash(value, |v| format!("{v:.2}"));
    let smaller = format!("smaller at {PERFORMANCE}");
    let mut table =
        Table::new(&["scenario", "configurations", "faster", &smaller, "pJ a bit", "less energy"], false);
    for (i, front) in study.fronts.iter().enumerate() {
        let (scenario, bit, gain) = &study.energy[i];
        table.row(vec![
            scenario.name(&study.inputs).to_owned(),
            front.configurations.to_string(),
            or_dash(study.at_area[i].1),
            or_dash(study.at_performance[i].1),
            format!("{:.0}", bit.total()),
            format!("{gain:.2}"),
        ]);
    }
    let mut text = format!("{} configurations within {:.0} mm²\n", study.configurations, study.budget.area);
    text += &table.render();

    let names: Vec<&str> = study.fronts.iter().map(|front| front.scenario.name(&study.inputs)).collect();
    let headings: Vec<&str> = ["tokens a joule", "share of communication"].into_iter().chain(names).collect();
    let mut table = Table::new(&headings, false);
    for row in &study.sizes {
        let gains = study.fronts.iter().map(|front| {
            or_dash(
                row.efficiency
                    .iter()
                    .find(|(scenario, _)| *scenario == front.scenario)
                    .map(|(_, gain)| *gain),
            )
        });
        table.row([row.name.clone(), format!("{:.2}", row.share)].into_iter().chain(gains).collect());
    }
    text += &format!("\n{}", table.render());

    let mut table = Table::new(&["assumption", "faster", &smaller], false);
    for row in &study.sensitivity {
        table.row(vec![row.what.clone(), or_dash(row.at_area), or_dash(row.at_performance)]);
    }
    text + &format!("\n{}, if one assumption changes:\n{}", study.inputs.codec.name, table.render())
}
