import { grouped, nearOne } from "../format.js";
import { shape } from "../view/dom.js";

/** The plot as a self-contained SVG text: its own colours, fonts and background, a title and a caption, no style sheet. */
export function svgTextOf(plot, model, theme) {
  const copy = plot.cloneNode(true);
  const width = Number(plot.getAttribute("width"));
  const height = Number(plot.getAttribute("height"));
  for (const element of copy.querySelectorAll(".reach")) element.remove();
  for (const element of [copy, ...copy.querySelectorAll("*")]) {
    for (const name of [
      "tabindex",
      "role",
      "class",
      "data-item",
      "data-text",
      "aria-label",
      "aria-pressed",
      "aria-hidden",
      "aria-roledescription",
    ])
      element.removeAttribute(name);
  }
  const strip = 30;
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("viewBox", `0 0 ${width} ${height + strip}`);
  copy.setAttribute("height", String(height + strip));
  const cosine = model.cosine[model.index];
  const words =
    cosine === null
      ? `step ${grouped(model.run.steps[model.index])}`
      : `step ${grouped(model.run.steps[model.index])}, cosine to the ${model.prediction.label} max-margin direction ${nearOne(cosine)}`;
  copy.prepend(shape("title", {}, "attsvm playground"));
  copy.append(
    shape("rect", { x: 0, y: height, width, height: strip, fill: theme.paper }),
    shape("text", { x: 12, y: height + 19, "font-size": 12, fill: theme.quiet }, words),
  );
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(copy)}`;
}

/** The same picture as PNG bytes, twice as large. */
export async function pngOf(svgText, scale = 2) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgText)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = image.width * scale;
  canvas.height = image.height * scale;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.drawImage(image, 0, 0);
  return new Promise((resolve, reject) => {
    canvas.toBlob(
      (blob) => (blob === null ? reject(new Error("the picture could not be encoded")) : resolve(blob)),
      "image/png",
    );
  });
}
