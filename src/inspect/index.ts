/**
 * Looking into checkpoints: functions over a `Checkpoint`.
 *
 * @module
 */
export { type Summary, summarize, type TensorSummary, type ValueSummary } from "./summary.js";
