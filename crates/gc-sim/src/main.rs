//! `kubegc-sim`: runs simulated worlds.
#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use gc_sim::campaign::{Record, SLICE_SEEDS, Slice, WORKLOAD_SLICE_SEEDS, seeds_of};
use gc_sim::defects::{self, DEFECTS, Defect};
use gc_sim::runner::{Summary, hunt, run_seeds, run_story, shrink};
use gc_sim::small::{Plan, explore};
use gc_sim::workloads;
use gc_sim::world::Options;
use mimalloc::MiMalloc;

/// Worlds are made of many small objects.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const USAGE: &str = "\
Simulated worlds that try to make the collector delete the wrong thing.

  kubegc-sim --seeds A..B [--record FILE] [--threads N] [--mutation NAME]
                              runs many worlds (a number of seeds, with --from SEED, is understood as well); a failure
                              prints the command that repeats it. With --record, each finished slice is appended to the
                              file, and the same command continues after the last one
  kubegc-sim --liars --seed N | --seeds A..B …
                              the same in worlds in which one answer lies; what is not done counts for nothing there, what is
                              lost does
  kubegc-sim --shards [--elections] --seed N | --seeds A..B …
                              the same in worlds in which the collectors are shards, whose number changes; with --elections,
                              each shard has several candidates, which elect its leader
  kubegc-sim --seed N [--mutation NAME] [--whole]
                              repeats one and prints what happens; of a failure, the short story (--whole: all of it)
  kubegc-sim --mutations [--tries N] [--limit SEEDS] [--mutation NAME]
                              plants each known defect, or one, and counts the seeds until it is noticed
  kubegc-sim --small OBJECTS [--depth TURNS] [--stride N] [--from SHAPE]
                              visits every graph over this many objects (at most 4), every policy and finalizer, and
                              every order of this many turns; with --stride only every Nth graph
  kubegc-sim --workloads --seed N | --seeds A..B [--record FILE] [--threads N] | --mutations [--limit SEEDS]
                              the same for worlds in which workload controllers run beside the collectors";

/// Arguments of the command line.
#[derive(Debug, Default)]
struct Arguments {
    seeds: Option<String>,
    record: Option<PathBuf>,
    from: u64,
    seed: Option<u64>,
    threads: Option<u64>,
    mutation: Option<Defect>,
    mutations: bool,
    workloads: bool,
    whole: bool,
    liars: bool,
    shards: bool,
    elections: bool,
    tries: Option<u64>,
    limit: Option<u64>,
    small: Option<u64>,
    depth: u64,
    stride: u64,
}

fn parse(arguments: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut parsed = Arguments::default();
    let mut arguments = arguments;
    while let Some(name) = arguments.next() {
        let mut number = || {
            let text = arguments.next().ok_or_else(|| format!("{name} needs a number"))?;
            text.parse::<u64>().map_err(|_| format!("{name}: not a number: {text}"))
        };
        match name.as_str() {
            "--seeds" => parsed.seeds = Some(arguments.next().unwrap_or_default()),
            "--record" => {
                parsed.record = Some(arguments.next().ok_or("--record needs a file")?.into());
            }
            "--from" => parsed.from = number()?,
            "--seed" => parsed.seed = Some(number()?),
            "--threads" => parsed.threads = Some(number()?),
            "--tries" => parsed.tries = Some(number()?),
            "--limit" => parsed.limit = Some(number()?),
            "--small" => parsed.small = Some(number()?),
            "--depth" => parsed.depth = number()?,
            "--stride" => parsed.stride = number()?,
            "--mutations" => parsed.mutations = true,
            "--workloads" => parsed.workloads = true,
            "--help" | "-h" => return Ok(Arguments::default()),
            "--whole" => parsed.whole = true,
            "--liars" => parsed.liars = true,
            "--shards" => parsed.shards = true,
            "--elections" => parsed.elections = true,
            "--mutation" => {
                let text = arguments.next().unwrap_or_default();
                parsed.mutation =
                    Some(defects::by_name(&text).ok_or_else(|| format!("no such mutation: {text}"))?);
            }
            other => return Err(format!("unknown argument: {other}")),
        }
    }
    Ok(parsed)
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(why) => {
            eprintln!("{why}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let seeds = arguments.seeds.as_ref().map(|text| seeds_of(text, arguments.from)).transpose();
    let seeds = match seeds {
        Ok(seeds) => seeds,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    let succeeded = if arguments.workloads {
        with_workloads(&arguments, seeds.as_ref())
    } else if let Some(seed) = arguments.seed {
        one(seed, &arguments)
    } else if let Some(objects) = arguments.small {
        small(objects, &arguments)
    } else if arguments.mutations {
        table(&arguments)
    } else if let Some(seeds) = seeds {
        many(&seeds, &arguments)
    } else {
        println!("{USAGE}");
        true
    };
    if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs worlds with workload controllers: one with a trace of its events, many, or one for each defect.
fn with_workloads(arguments: &Arguments, seeds: Option<&Range<u64>>) -> bool {
    if let Some(seed) = arguments.seed {
        let report = workloads::run(seed, None, true);
        for line in &report.trace {
            println!("{line}");
        }
        report.violation.is_none()
    } else if arguments.mutations {
        hunt_with_workloads(arguments.limit.unwrap_or(6_000))
    } else if let Some(seeds) = seeds {
        many_with_workloads(seeds, arguments)
    } else {
        println!("{USAGE}");
        true
    }
}

fn hunt_with_workloads(limit: u64) -> bool {
    let mut all = true;
    for (defect, name) in workloads::DEFECTS {
        let found = workloads::hunt(defect, limit);
        match found {
            Some((seeds, oracle)) => println!("{name:<20} {seeds:>6} seeds  {oracle}"),
            None => println!("{name:<20} not found within {limit} seeds"),
        }
        all &= found.is_some();
    }
    all
}

fn many_with_workloads(seeds: &Range<u64>, arguments: &Arguments) -> bool {
    campaign(seeds, arguments, WORKLOAD_SLICE_SEEDS, |slice| {
        Slice::from(&workloads::run_seeds(slice.start, slice.end - slice.start, threads(arguments)))
    })
}

fn options(arguments: &Arguments, trace: bool) -> Options {
    let &Arguments { mutation: defect, liars, shards, elections, .. } = arguments;
    Options { defect, liars, shards, elections, trace }
}

fn one(seed: u64, arguments: &Arguments) -> bool {
    let options = options(arguments, true);
    let mut story = options.story(seed);
    let mut report = run_story(&story, options);
    if let Some(violation) = &report.violation
        && !arguments.whole
    {
        let whole = story.steps.len();
        story = shrink(&story, options, violation.oracle);
        report = run_story(&story, options);
        println!("seed {seed}: {} of {whole} steps are enough\n", story.steps.len());
    }
    if story.namespaces {
        println!("{:?} weather over namespaces", story.weather);
    } else {
        println!("{:?} weather, {} effects in flight", story.weather, story.effects_in_flight);
    }
    for line in &report.trace {
        println!("{line}");
    }
    println!("\nevents {} requests {} digest {:016x}", report.events, report.requests, report.digest);
    match report.violation {
        None => {
            println!("seed {seed}: nothing broken");
            true
        }
        Some(violation) => {
            println!("seed {seed}: {violation}");
            false
        }
    }
}

fn small(objects: u64, arguments: &Arguments) -> bool {
    let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let begun = Instant::now();
    let census = explore(Plan {
        objects: usize::try_from(objects).unwrap_or(4),
        depth: usize::try_from(arguments.depth).unwrap_or(usize::MAX),
        loops: true,
        stride: narrow(arguments.stride.max(1)),
        first: narrow(arguments.from),
    });
    println!(
        "{} worlds, {} states visited, {} judged at rest, in {:.1} s",
        census.worlds,
        census.states,
        census.rests,
        begun.elapsed().as_secs_f64()
    );
    for (world, violation) in &census.violations {
        println!("{violation}\n  in {world}");
    }
    census.violations.is_empty()
}

fn threads(arguments: &Arguments) -> u64 {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    arguments.threads.unwrap_or(cores)
}

/// Runs many worlds, and reports their events.
fn many(seeds: &Range<u64>, arguments: &Arguments) -> bool {
    let options = options(arguments, false);
    let mut summary = Summary::default();
    let succeeded = campaign(seeds, arguments, SLICE_SEEDS, |slice| {
        let found = run_seeds(slice.start, slice.end - slice.start, threads(arguments), options);
        let counted = Slice::from(&found);
        summary.merge(found);
        counted
    });
    for (what, count) in &summary.happened {
        println!("  {count:>9} {what}");
    }
    println!("not judged: {:?}", summary.exemptions);
    println!("digest {:016x}", summary.digest);
    succeeded
}

/// Runs all seeds that are not recorded yet, slice by slice. Returns true if no world failed, including those recorded before.
fn campaign(
    seeds: &Range<u64>,
    arguments: &Arguments,
    slice_seeds: u64,
    run: impl FnMut(&Range<u64>) -> Slice,
) -> bool {
    continued(seeds, arguments, slice_seeds, run).unwrap_or_else(|why| {
        eprintln!("{why}");
        false
    })
}

fn continued(
    seeds: &Range<u64>,
    arguments: &Arguments,
    slice_seeds: u64,
    mut run: impl FnMut(&Range<u64>) -> Slice,
) -> Result<bool, String> {
    let record = arguments.record.as_deref().map(Record);
    let mut total = record.map_or_else(
        || Ok(Slice::none_of(seeds, arguments.workloads)),
        |record| record.read(seeds, arguments.workloads),
    )?;
    let kinds = [
        (arguments.workloads, " --workloads"),
        (arguments.liars, " --liars"),
        (arguments.shards, " --shards"),
        (arguments.elections, " --elections"),
    ];
    let kinds: String = kinds.into_iter().filter(|(is_so, _)| *is_so).map(|(_, flag)| flag).collect();
    let mutation = DEFECTS.iter().find(|row| Some(row.0) == arguments.mutation);
    let mutation = mutation.map(|row| format!(" --mutation {}", row.1)).unwrap_or_default();
    while total.to < seeds.end {
        let slice = total.to..seeds.end.min(total.to + slice_seeds);
        let begun = Instant::now();
        let found = run(&slice).of(&slice, begun.elapsed().as_secs_f64());
        for failure in &found.failures {
            let repeat = format!("kubegc-sim{kinds} --seed {}{mutation}", failure.seed);
            println!("{}\n  repeat with: {repeat}\n", failure.violation);
        }
        if let Some(record) = record {
            record.append(&found)?;
        }
        total.add(found);
        if total.to < seeds.end {
            println!("{}", total.line());
        }
    }
    println!("{}", total.line());
    Ok(total.failures.is_empty())
}

fn table(arguments: &Arguments) -> bool {
    let (tries, limit) = (arguments.tries.unwrap_or(5), arguments.limit.unwrap_or(6_000));
    println!("{:<28} {:>6} {:>7}  {:<28} what", "mutation", "found", "median", "oracle");
    let mut all = true;
    let is_asked = |defect: Defect| arguments.mutation.is_none_or(|only| only == defect);
    for (defect, name, what) in DEFECTS.into_iter().filter(|(defect, ..)| is_asked(*defect)) {
        let finding = hunt(defect, tries, limit);
        let median = finding.median().map_or_else(|| "-".to_owned(), |median| median.to_string());
        let mut oracles = finding.oracles.clone();
        oracles.sort_unstable();
        oracles.dedup();
        let found = format!("{}/{tries}", finding.needed.len());
        println!("{name:<28} {found:>6} {median:>7}  {:<28} {what}", oracles.join(" "));
        all &= finding.median().is_some();
    }
    all
}
