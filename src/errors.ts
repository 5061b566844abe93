/**
 * Every error class of the library. An error is data: a `code` to branch on, the file it is about, and the facts
 * (expected, found, offset, …) as fields beside the message.
 *
 * Wrong arguments are the built-in `TypeError` or `RangeError`, thrown before any I/O; an abort passes on
 * `signal.reason`. Everything else that a caller can meet is a {@link TorchloadError}.
 *
 * @module
 */

/** The kinds of error, each the `code` of one class. */
export type ErrorCode = "format" | "unsupported" | "unsafe-pickle" | "source" | "device";

/** What every error of the library can carry. */
export interface ErrorDetails {
  /** The file, URL or other name of the source the error is about. */
  readonly file?: string | undefined;
  /** The error from another layer that led to this one. */
  readonly cause?: unknown;
}

/** The base of all errors that the library throws for what a file, a source or a device did. */
export abstract class TorchloadError extends Error {
  /** Which kind of error this is. */
  abstract readonly code: ErrorCode;
  /** The file, URL or other name of the source, when one is involved. */
  readonly file: string | undefined;

  constructor(message: string, details: ErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = new.target.name;
    this.file = details.file;
  }
}

/** What a {@link FormatError} can say beside its message. */
export interface FormatErrorDetails extends ErrorDetails {
  /** The record of the archive, the tensor or the storage the fault lies in. */
  readonly record?: string | undefined;
  /** Where in the file, or in the pickle stream of `record`, the fault was met, in bytes. */
  readonly byteOffset?: number | undefined;
  /** What the format asks for at this place. */
  readonly expected?: string | number | undefined;
  /** What the file has there. */
  readonly found?: string | number | undefined;
  /** For a file that is cut short: the names of the tensors that are whole. */
  readonly whole?: readonly string[] | undefined;
}

/** The bytes are not what the format demands: damaged, cut short, contradictory, or another format altogether. */
export class FormatError extends TorchloadError {
  readonly code = "format" as const;
  readonly record: string | undefined;
  readonly byteOffset: number | undefined;
  readonly expected: string | number | undefined;
  readonly found: string | number | undefined;
  readonly whole: readonly string[] | undefined;

  constructor(message: string, details: FormatErrorDetails = {}) {
    super(message, details);
    this.record = details.record;
    this.byteOffset = details.byteOffset;
    this.expected = details.expected;
    this.found = details.found;
    this.whole = details.whole;
  }
}

/** The file is valid, but asks for something that this library or this platform does not do. */
export class UnsupportedError extends TorchloadError {
  readonly code = "unsupported" as const;
  /** The feature that is missing, in a few words. */
  readonly feature: string;

  constructor(message: string, details: ErrorDetails & { readonly feature: string }) {
    super(message, details);
    this.feature = details.feature;
  }
}

/** The pickle asks for a class or function that weights-only loading does not allow. Nothing was run. */
export class UnsafePickleError extends TorchloadError {
  readonly code = "unsafe-pickle" as const;
  /** The Python module of the refused global. */
  readonly module: string;
  /** The qualified name of the refused global in its module. */
  readonly global: string;

  constructor(message: string, details: ErrorDetails & { readonly module: string; readonly global: string }) {
    super(message, details);
    this.module = details.module;
    this.global = details.global;
  }
}

/** Bytes could not be had from a source: it does not exist, refuses, ended early or changed meanwhile. */
export class SourceError extends TorchloadError {
  readonly code = "source" as const;
  /** HTTP status or the system's error name (`ENOENT`), where there is one. */
  readonly status: number | string | undefined;
  /** How many bytes were asked for. */
  readonly wanted: number | undefined;
  /** How many of them came. */
  readonly got: number | undefined;

  constructor(
    message: string,
    details: ErrorDetails & {
      readonly status?: number | string | undefined;
      readonly wanted?: number | undefined;
      readonly got?: number | undefined;
    } = {},
  ) {
    super(message, details);
    this.status = details.status;
    this.wanted = details.wanted;
    this.got = details.got;
  }
}

/** A device is not there, is out of memory, or failed. */
export class DeviceError extends TorchloadError {
  readonly code = "device" as const;
  /** The device the error is about, such as `"cuda:1"`. */
  readonly device: string;
  /** The driver's numeric result, where the driver gave one. */
  readonly driverCode: number | undefined;
  /** The driver's name of that result, such as `"CUDA_ERROR_OUT_OF_MEMORY"`. */
  readonly driverName: string | undefined;

  constructor(
    message: string,
    details: ErrorDetails & {
      readonly device: string;
      readonly driverCode?: number | undefined;
      readonly driverName?: string | undefined;
    },
  ) {
    super(message, details);
    this.device = details.device;
    this.driverCode = details.driverCode;
    this.driverName = details.driverName;
  }
}

interface ErrorByCode {
  readonly format: FormatError;
  readonly unsupported: UnsupportedError;
  readonly "unsafe-pickle": UnsafePickleError;
  readonly source: SourceError;
  readonly device: DeviceError;
}

/**
 * Whether a caught value is an error of this library, and of one kind when `code` is given.
 *
 * @example
 * ```ts
 * try {
 *   await load("model.pt");
 * } catch (error) {
 *   if (isTorchloadError(error, "unsafe-pickle")) console.error(error.module, error.global);
 *   else throw error;
 * }
 * ```
 */
export function isTorchloadError(error: unknown): error is TorchloadError;
export function isTorchloadError<Code extends ErrorCode>(error: unknown, code: Code): error is ErrorByCode[Code];
export function isTorchloadError(error: unknown, code?: ErrorCode): boolean {
  return error instanceof TorchloadError && (code === undefined || error.code === code);
}
