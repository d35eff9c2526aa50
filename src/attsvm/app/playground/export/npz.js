import { datasetArrays } from "./arrays.js";

let crcTable = null;

export function crcOf(bytes) {
  if (crcTable === null) {
    crcTable = Uint32Array.from({ length: 256 }, (_, n) => {
      let value = n;
      for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? 0xedb88320 ^ (value >>> 1) : value >>> 1;
      return value;
    });
  }
  let crc = 0xffffffff;
  for (const byte of bytes) crc = crcTable[(crc ^ byte) & 0xff] ^ (crc >>> 8);
  return (crc ^ 0xffffffff) >>> 0;
}

function shapeOf(value) {
  return Array.isArray(value) ? [value.length, ...shapeOf(value[0])] : [];
}

/** NumPy's .npy format, version 1.0: doubles, or booleans where the entries are. */
function npyBytes(nested) {
  const flat = nested.flat(Infinity);
  const logical = typeof flat[0] === "boolean";
  const lengths = shapeOf(nested);
  const tuple = lengths.length === 1 ? `(${lengths[0]},)` : `(${lengths.join(", ")})`;
  const header = `{'descr': '${logical ? "|b1" : "<f8"}', 'fortran_order': False, 'shape': ${tuple}, }`;
  const padded = `${header}${" ".repeat(63 - ((10 + header.length) % 64))}\n`;
  const body = logical ? Uint8Array.from(flat, Number) : new Uint8Array(8 * flat.length);
  if (!logical) {
    const view = new DataView(body.buffer);
    flat.forEach((entry, k) => view.setFloat64(8 * k, entry, true));
  }
  const bytes = new Uint8Array(10 + padded.length + body.length);
  bytes.set([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, padded.length & 0xff, padded.length >> 8]);
  bytes.set(new TextEncoder().encode(padded), 10);
  bytes.set(body, 10 + padded.length);
  return bytes;
}

function littleEndian(...fields) {
  const bytes = new Uint8Array(fields.reduce((sum, [size]) => sum + size, 0));
  const view = new DataView(bytes.buffer);
  let at = 0;
  for (const [size, value] of fields) {
    if (size === 2) view.setUint16(at, value, true);
    else view.setUint32(at, value, true);
    at += size;
  }
  return bytes;
}

function joinedBytes(pieces) {
  const bytes = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    bytes.set(piece, at);
    at += piece.length;
  }
  return bytes;
}

/** A zip archive of stored files; the same files give the same bytes. */
function zipBytes(files) {
  const local = [];
  const central = [];
  let offset = 0;
  for (const [name, content] of files) {
    const title = new TextEncoder().encode(name);
    const date = 33; // the first of January 1980, the earliest that zip can say
    const common = [
      [2, 20],
      [2, 0],
      [2, 0],
      [2, 0],
      [2, date],
      [4, crcOf(content)],
      [4, content.length],
      [4, content.length],
      [2, title.length],
      [2, 0],
    ];
    const header = littleEndian([4, 0x04034b50], ...common);
    local.push(header, title, content);
    central.push(littleEndian([4, 0x02014b50], [2, 20], ...common, [2, 0], [2, 0], [2, 0], [4, 0], [4, offset]), title);
    offset += header.length + title.length + content.length;
  }
  const directory = joinedBytes(central);
  const end = littleEndian(
    [4, 0x06054b50],
    [2, 0],
    [2, 0],
    [2, files.length],
    [2, files.length],
    [4, directory.length],
    [4, offset],
    [2, 0],
  );
  return joinedBytes([...local, directory, end]);
}

/**
 * The data as .npz that attsvm reads. Where the head is trained it is the head at the end of the run, so that
 * `attsvm solve --select optimal` has scores to go by.
 */
export function npzOf(model) {
  const { problem, run } = model;
  const head = model.headTrained ? run.parameters[run.parameters.length - 1].head : problem.head;
  const arrays = datasetArrays(problem, head);
  const files = Object.entries(arrays)
    .filter(([, value]) => value !== null)
    .map(([name, value]) => [`${name}.npy`, npyBytes(value)]);
  return zipBytes(files);
}
