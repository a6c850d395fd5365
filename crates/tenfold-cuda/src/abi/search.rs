//! The numbers of a search for a step, from the table that all searches share.

use tenfold::engine::search::tolerance::{
    self, DEVICE_BYTES, DEVICE_CAP, DEVICE_COARSE_SAMPLE, DEVICE_ERROR, DEVICE_FINE_SAMPLE, DEVICE_LOOKS,
    DEVICE_PASSES,
};
use tenfold::engine::search::{MOVES, SLOPES};

use super::shared_constants;

shared_constants! {
    /// How far one trial leads to the next.
    const MOVE_BEYOND: f64 = MOVES.beyond;
    const MOVE_LEAST: f64 = MOVES.least;
    const MOVE_FARTHEST: f64 = MOVES.farthest;
    const MOVE_CLEAR: f64 = MOVES.clear;
    /// How a rate answers to a step.
    const SLOPE_KNEE: f64 = SLOPES.knee;
    const SLOPE_STEEPEST: f64 = SLOPES.steepest;
    const SLOPE_FARTHEST: f64 = SLOPES.farthest;
    /// Trials on the sample: step and costs in turn, and the step alone.
    const COARSE_NEAR: f64 = DEVICE_COARSE_SAMPLE.over;
    const COARSE_DAMPING: f64 = DEVICE_COARSE_SAMPLE.damping;
    const COARSE_SETTLING: u32 = DEVICE_COARSE_SAMPLE.settling as u32;
    const COARSE_ROUNDS: u32 = DEVICE_COARSE_SAMPLE.rounds as u32;
    const FINE_NEAR: f64 = DEVICE_FINE_SAMPLE.over;
    const FINE_SURE: f64 = DEVICE_FINE_SAMPLE.late.0;
    const FINE_DAMPING: f64 = DEVICE_FINE_SAMPLE.damping;
    const FINE_ROUNDS: u32 = DEVICE_FINE_SAMPLE.rounds as u32;
    /// Full passes: what is aimed at, and what is near enough. Under a cap that is a share of the cap.
    const BYTES_NEAR: f64 = DEVICE_BYTES.over;
    const CAP_AIM: f64 = DEVICE_CAP.aim;
    const CAP_SPARE: f64 = DEVICE_CAP.spare;
    const CAP_NEAR: f64 = DEVICE_CAP.aim - DEVICE_CAP.under;
    const ERROR_AIM: f64 = DEVICE_ERROR.aim;
    const ERROR_NEAR: f64 = DEVICE_ERROR.over;
    const PASS_CLOSED: f64 = DEVICE_BYTES.closed.0;
    const PASS_DAMPING: f64 = DEVICE_BYTES.damping;
    const PASS_LOWER: f64 = DEVICE_PASSES.lower;
    const PASS_LOWEST: f64 = DEVICE_PASSES.lowest;
    const PASS_FURTHER: f64 = DEVICE_PASSES.further;
    const PASS_RETREAT: f64 = DEVICE_PASSES.retreat;
    const AT_FINEST: f64 = tolerance::AT_FINEST;
    /// Looks at several steps at once.
    const LOOKS_FIRST: u32 = DEVICE_LOOKS.first as u32;
    const LOOK_FAR: f64 = DEVICE_LOOKS.far;
    const LOOK_NEAR: f64 = DEVICE_LOOKS.near;
    const LOOK_ROUNDS: u32 = DEVICE_LOOKS.rounds as u32;
    const LOOK_BEYOND: f64 = DEVICE_LOOKS.beyond;
}
