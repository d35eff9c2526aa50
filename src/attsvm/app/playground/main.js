/** The entry: what the joined module exports. */
import { maths } from "./maths/index.js";
import { mount } from "./mount.js";
import { render } from "./widget.js";

export const playground = Object.freeze({ maths, mount, render });
