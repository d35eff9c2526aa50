import { crcOf } from "./npz.js";

/** Reads the arrays of a .npz file, as NumPy and attsvm write it: a zip archive of .npy files, stored or deflated. */

export class FileError extends Error {}

function complain(sentence) {
  throw new FileError(sentence);
}

async function inflated(bytes) {
  try {
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  } catch {
    return complain("the file is damaged: a compressed array cannot be unpacked");
  }
}

/** Members of a zip archive by name, from its directory at the end; every one matches its checksum. */
async function unzipped(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let end = bytes.length - 22;
  while (end >= 0 && view.getUint32(end, true) !== 0x06054b50) end -= 1;
  if (end < 0) complain("the file is no .npz file: it is not a zip archive, or was cut off");
  const members = new Map();
  let at = view.getUint32(end + 16, true);
  for (let left = view.getUint16(end + 10, true); left > 0; left -= 1) {
    if (view.getUint32(at, true) !== 0x02014b50) complain("the file is damaged: its directory cannot be read");
    const [method, crc, packed] = [view.getUint16(at + 10, true), view.getUint32(at + 16, true), view.getUint32(at + 20, true)];
    const nameLength = view.getUint16(at + 28, true);
    const local = view.getUint32(at + 42, true);
    const name = new TextDecoder().decode(bytes.subarray(at + 46, at + 46 + nameLength));
    at += 46 + nameLength + view.getUint16(at + 30, true) + view.getUint16(at + 32, true);
    const start = local + 30 + view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
    if (start + packed > bytes.length) complain("the file is damaged: an array reaches beyond its end");
    const content = bytes.subarray(start, start + packed);
    if (method !== 0 && method !== 8) complain(`${name} is compressed in a way that browsers cannot unpack`);
    const plain = method === 0 ? content : await inflated(content);
    if (crcOf(plain) !== crc) complain(`the file is damaged: ${name} does not match its checksum`);
    members.set(name.replace(/\.npy$/, ""), plain);
  }
  return members;
}

const READERS = {
  f8: [8, (view, at, little) => view.getFloat64(at, little)],
  f4: [4, (view, at, little) => view.getFloat32(at, little)],
  i8: [8, (view, at, little) => Number(view.getBigInt64(at, little))],
  i4: [4, (view, at, little) => view.getInt32(at, little)],
  i2: [2, (view, at, little) => view.getInt16(at, little)],
  i1: [1, (view, at) => view.getInt8(at)],
  u1: [1, (view, at) => view.getUint8(at)],
  b1: [1, (view, at) => view.getUint8(at)],
};

function headerOf(bytes, name) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.length < 12 || view.getUint32(0) !== 0x934e554d) complain(`${name} is not a NumPy array`);
  const wide = bytes[6] > 1;
  const start = wide ? 12 : 10;
  const length = wide ? view.getUint32(8, true) : view.getUint16(8, true);
  const text = new TextDecoder("latin1").decode(bytes.subarray(start, start + length));
  const kind = /'descr':\s*'([<>|=])(\w+)'/.exec(text);
  const shape = /'shape':\s*\(([^)]*)\)/.exec(text);
  if (kind === null || shape === null) complain(`${name} is not an array of numbers`);
  return {
    little: kind[1] !== ">",
    type: kind[2],
    fortran: /'fortran_order':\s*True/.test(text),
    lengths: shape[1].split(",").map((part) => part.trim()).filter((part) => part !== "").map(Number),
    body: new DataView(bytes.buffer, bytes.byteOffset + start + length, bytes.byteLength - start - length),
  };
}

/** An array as nested lists; a text as a string. */
function arrayOf(bytes, name) {
  const { little, type, fortran, lengths, body } = headerOf(bytes, name);
  const count = lengths.reduce((product, length) => product * length, 1);
  if (/^U\d+$/.test(type)) {
    const letters = Array.from({ length: Math.floor(body.byteLength / 4) }, (_, k) => body.getUint32(4 * k, little));
    return String.fromCodePoint(...letters.filter((letter) => letter > 0 && letter < 0x110000));
  }
  const [size, read] = READERS[type] ?? complain(`${name} is stored as ${type}; floating point, integers and booleans are read`);
  if (!(count * size <= body.byteLength)) complain(`the file is damaged: ${name} ends too early`);
  const nested = (axis, offset, stride) => {
    if (axis === lengths.length) return read(body, size * offset, little);
    const step = fortran ? stride : lengths.slice(axis + 1).reduce((product, length) => product * length, 1);
    return Array.from({ length: lengths[axis] }, (_, k) => nested(axis + 1, offset + k * step, stride * lengths[axis]));
  };
  return nested(0, 0, 1);
}

/** The arrays of a .npz file by name. Throws a `FileError` with one sentence where it cannot be read. */
export async function readNpz(bytes) {
  const arrays = {};
  try {
    for (const [name, content] of await unzipped(bytes)) arrays[name] = arrayOf(content, name);
  } catch (error) {
    if (error instanceof RangeError) complain("the file is damaged: it points beyond its own end");
    throw error;
  }
  return arrays;
}
