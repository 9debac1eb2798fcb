// @ts-check
/**
 * A picture from a file, the clipboard or a drop, made small enough to send, as a data URL.
 * Owns size and format; nothing is uploaded anywhere else.
 */

import { ApiError } from "./api.js";

const LONGEST_SIDE = 640;
const JPEG_QUALITY = 0.9;

/**
 * The pictures among files.
 * @param {DataTransfer | null} transfer
 * @returns {File[]}
 */
export const imagesOf = (transfer) => [...(transfer?.files ?? [])].filter(({ type }) => type.startsWith("image/"));

/**
 * At most 640 pixels a side. PNG where the source may have sharp edges or be transparent, else JPEG.
 * Raises ApiError for a file the browser cannot read as a picture.
 * @param {File} file
 * @returns {Promise<string>}
 */
export async function toDataUrl(file) {
  const bitmap = await createImageBitmap(file).catch(() => {
    throw new ApiError("ImageUnreadable", `${file.name || "this file"} is no picture`, "choose a PNG, JPEG or WebP");
  });
  const scale = Math.min(1, LONGEST_SIDE / Math.max(bitmap.width, bitmap.height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
  return file.type === "image/jpeg" ? canvas.toDataURL("image/jpeg", JPEG_QUALITY) : canvas.toDataURL("image/png");
}
