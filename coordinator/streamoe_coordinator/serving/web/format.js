// @ts-check
/**
 * Figures as people read them, in the words of the terminal's line. Pure.
 */

const KIB = 1024;
const MIB = 1024 ** 2;
const GIB = 1024 ** 3;

/**
 * "4.00 GiB", "512 B".
 * @param {number} bytes
 */
export function formatSize(bytes) {
  for (const [scale, unit] of /** @type {[number, string][]} */ ([[GIB, "GiB"], [MIB, "MiB"], [KIB, "KiB"]])) {
    if (Math.abs(bytes) >= scale) return `${(bytes / scale).toFixed(2)} ${unit}`;
  }
  return `${Math.round(bytes)} B`;
}

/**
 * "3.74/4.00 GiB": some bytes and the cap in one unit.
 * @param {number} bytes
 * @param {number} capBytes
 */
export function ofCap(bytes, capBytes) {
  const [scale, unit, digits] = /** @type {[number, string, number]} */ (
    capBytes >= GIB ? [GIB, "GiB", 2] : [MIB, "MiB", 0]
  );
  return `${(bytes / scale).toFixed(digits)}/${(capBytes / scale).toFixed(digits)} ${unit}`;
}

/** @param {number} share */
export const percent = (share) => `${Math.round(share * 100)}%`;

/** @param {number} tokensPerS */
export const speed = (tokensPerS) => `${tokensPerS.toFixed(tokensPerS < 100 ? 1 : 0)} tok/s`;

/** @param {number} seconds */
export function duration(seconds) {
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  return `${Math.floor(whole / 60)} min ${whole % 60} s`;
}

/** @param {number} seconds */
export function milliseconds(seconds) {
  const ms = seconds * 1000;
  if (ms > 0 && ms < 0.05) return "< 0.1 ms";
  return `${ms >= 10 ? Math.round(ms) : ms.toFixed(1)} ms`;
}

/** Bytes a token: "318 MiB/tok".
 * @param {number} bytes
 */
export function perToken(bytes) {
  if (bytes < MIB / 20) return `${(bytes / KIB).toFixed(1)} KiB/tok`;
  return `${(bytes / MIB).toFixed(bytes >= 10 * MIB ? 0 : 1)} MiB/tok`;
}
