import { mixed } from "./colours.js";
import { setAttributes, shape } from "./dom.js";

/** The colour of destination k; grey where attention stays spread. */
export function destinationColour(theme, k) {
  if (k < 0) return theme.faint;
  const { destinations } = theme;
  return mixed(destinations[k % destinations.length], theme.ink, k < destinations.length ? 1 : 0.6);
}

/** Starting points coloured by where descent from them ends, as one image under everything else. */
export function createBasin() {
  const image = shape("image", { "clip-path": "url(#inside-disc)", preserveAspectRatio: "none", opacity: 0.26 });
  image.style.setProperty("image-rendering", "pixelated");
  const element = shape("g", { "aria-hidden": "true" }, image);
  let drawn = null;

  function update({ model, plane, theme, layers }) {
    const basin = layers.basin ? model.basin : null;
    if (basin === null || basin.cells === null) {
      setAttributes(image, { display: "none" });
      return;
    }
    const stamp = `${basin.version} ${theme.name}`;
    if (drawn !== stamp) {
      drawn = stamp;
      setAttributes(image, { href: basinPicture(basin, theme) });
    }
    const [left, top] = [plane.centre[0] - plane.scale * basin.extent, plane.centre[1] - plane.scale * basin.extent];
    setAttributes(image, {
      display: null,
      x: left,
      y: top,
      width: 2 * plane.scale * basin.extent,
      height: 2 * plane.scale * basin.extent,
    });
  }

  return { element, update };
}

function basinPicture(basin, theme) {
  const canvas = document.createElement("canvas");
  canvas.width = basin.size;
  canvas.height = basin.size;
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(basin.size, basin.size);
  basin.cells.forEach((cell, at) => {
    if (cell === null) return;
    const colour = destinationColour(theme, cell);
    for (let c = 0; c < 3; c += 1) pixels.data[4 * at + c] = parseInt(colour.slice(1 + 2 * c, 3 + 2 * c), 16);
    pixels.data[4 * at + 3] = 255;
  });
  context.putImageData(pixels, 0, 0);
  return canvas.toDataURL("image/png");
}
