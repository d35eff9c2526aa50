/**
 * The papers' hand-made examples, written from attsvm.data.EXAMPLES; a test holds them against Python.
 * `starts` are the papers' starting points, p(0) or W(0) row by row.
 */
export const EXAMPLE_DATA = {
  "single-input-global": {
    kind: "prompt",
    head: [0, 1],
    starts: [
      [0, 1],
      [0, 0.5],
      [0, 0],
      [0, -0.5],
      [0, -1],
      [0, -1.5],
    ],
    startHead: null,
    inputs: [
      {
        label: 1,
        query: null,
        tokens: [
          { x: [-0.1, 1], score: 1 },
          { x: [1, 0], score: 0.9 },
          { x: [0, 0], score: 0.9 },
        ],
      },
    ],
  },
  "single-input-local": {
    kind: "prompt",
    head: [0, 1],
    starts: [
      [0, 1],
      [0, 0.5],
      [0, 0],
      [0, -0.5],
      [0, -1],
      [0, -1.5],
    ],
    startHead: null,
    inputs: [
      {
        label: 1,
        query: null,
        tokens: [
          { x: [-0.1, 1], score: 1 },
          { x: [1, 0], score: 0.9 },
          { x: [0, 0], score: 0 },
        ],
      },
    ],
  },
  "multi-input": {
    kind: "prompt",
    head: [0, 1],
    starts: [
      [1, 0],
      [0.5, 0],
      [0, 0],
      [-0.5, 0],
      [-1, 0],
      [-1.5, 0],
    ],
    startHead: null,
    inputs: [
      {
        label: 1,
        query: null,
        tokens: [
          { x: [0.9588051942741552, -0.02576899018692552], score: 1 },
          { x: [-1.0579579750981825, 0.7456113430852209], score: 0.5 },
          { x: [-1.281286980165687, 1.0086815359689723], score: 0.5 },
          { x: [-1.1098337811589825, 1.1224017480040458], score: 0.5 },
          { x: [-0.3813840609855602, -0.3083441647682843], score: 0.5 },
          { x: [-0.43611212257153514, -0.3551119087511594], score: 0.5 },
          { x: [-0.1638431477109174, -0.19465749980217856], score: 0.5 },
        ],
      },
      {
        label: 1,
        query: null,
        tokens: [
          { x: [0.9607661312089821, -0.18765164941189655], score: 1 },
          { x: [-1.38996764335104, 1.119922682203635], score: 0.5 },
          { x: [-1.3804724575680436, 1.1818052711725058], score: 0.5 },
          { x: [-1.026703683214226, 1.3035380251889328], score: 0.5 },
          { x: [-0.429100331887598, -0.7063169426338096], score: 0.5 },
          { x: [-0.29979735671658897, -0.4439198080413434], score: 0.5 },
          { x: [-0.36139945138980556, -0.5940421579580712], score: 0.5 },
        ],
      },
      {
        label: 1,
        query: null,
        tokens: [
          { x: [0.9969224457073251, 0.04143245357218832], score: 1 },
          { x: [-1.1871418885402054, 1.0337961664421698], score: 0.5 },
          { x: [-0.9948831559978027, 0.844954009022172], score: 0.5 },
          { x: [-1.0013335896790208, 1.1233351136426486], score: 0.5 },
          { x: [-0.37077726809360745, -0.875556380668421], score: 0.5 },
          { x: [-0.4352832654690076, -0.5312067720042386], score: 0.5 },
          { x: [-0.3438091834778021, -0.7887959598644516], score: 0.5 },
        ],
      },
    ],
  },
  "joint-training-tight": {
    kind: "prompt",
    head: [0, 1],
    starts: [[0, -1]],
    startHead: [-1, 0],
    inputs: [
      {
        label: 1,
        query: null,
        tokens: [
          { x: [0, 0], score: null },
          { x: [1, 1], score: null },
        ],
      },
      {
        label: -1,
        query: null,
        tokens: [
          { x: [0, 0], score: null },
          { x: [1, -1], score: null },
        ],
      },
      {
        label: 1,
        query: null,
        tokens: [
          { x: [0, 0], score: null },
          { x: [0.5, 1], score: null },
        ],
      },
    ],
  },
  "joint-training-relaxed": {
    kind: "prompt",
    head: [0, 1],
    starts: [[0, -1]],
    startHead: [-1, 0],
    inputs: [
      {
        label: 1,
        query: null,
        tokens: [
          { x: [0, 0], score: null },
          { x: [1, 1], score: null },
        ],
      },
      {
        label: -1,
        query: null,
        tokens: [
          { x: [0, 0], score: null },
          { x: [1, -1], score: null },
        ],
      },
      {
        label: 1,
        query: null,
        tokens: [
          { x: [0, 0], score: null },
          { x: [0.5, 1.5], score: null },
        ],
      },
    ],
  },
  "loss-comparison": {
    kind: "prompt",
    head: [0, 1],
    starts: [[0, 0]],
    startHead: null,
    inputs: [
      {
        label: 1,
        query: null,
        tokens: [
          { x: [0, 0], score: 0 },
          { x: [1, 1], score: 1 },
        ],
      },
      {
        label: 1,
        query: null,
        tokens: [
          { x: [0, 0], score: 0 },
          { x: [1, -1], score: 1 },
        ],
      },
    ],
  },
  trajectories: {
    kind: "matrix",
    head: [-0.8157977961681625, 0.5783372335991944],
    starts: [[0, 0, 0, 0]],
    startHead: null,
    inputs: [
      {
        label: 1,
        query: [0.5723793116092962, -0.8199889777562063],
        tokens: [
          { x: [-1.109435393685768, -0.08862801165896793], score: null },
          { x: [-1.4247589178187263, 0.54235465798314], score: null },
          { x: [-1.1236138662986717, 0.07627009230161017], score: null },
        ],
      },
      {
        label: 1,
        query: [-0.9997520570409549, 0.0222671157175562],
        tokens: [
          { x: [0.6465493863548384, 0.44451036435995195], score: null },
          { x: [1.6677201332418214, -0.15493386280753144], score: null },
          { x: [0.5913728226679819, -0.13192266501265396], score: null },
        ],
      },
    ],
  },
  hyperplanes: {
    kind: "matrix",
    head: [0.4053402059686867, 0.9141659135109242],
    starts: [[0, 0, 0, 0]],
    startHead: null,
    inputs: [
      {
        label: 1,
        query: [0.8228600845312124, -0.5682440332157355],
        tokens: [
          { x: [1, 0.5], score: null },
          { x: [-1.1083947386223738, 0.12144103483397584], score: null },
          { x: [-2.0917387552331634, 0.1621843845470916], score: null },
          { x: [-0.8427436208544743, 0.44463750589788303], score: null },
          { x: [-1.2593115633717025, 0.508980188283853], score: null },
        ],
      },
      {
        label: 1,
        query: [-0.4916501127349236, 0.8707928379630466],
        tokens: [
          { x: [1, -0.5], score: null },
          { x: [-1.0968441170483558, -0.04060237798056258], score: null },
          { x: [-0.4241740839413122, -0.33705407023887224], score: null },
          { x: [-1.1236148651919828, -0.25960541334848947], score: null },
          { x: [-1.2437088114969699, -0.358213136939408], score: null },
        ],
      },
    ],
  },
  "two-inputs": {
    kind: "matrix",
    head: [0, 1],
    starts: [[0, 0, 0, 0]],
    startHead: null,
    inputs: [
      {
        label: 1,
        query: [1, 0],
        tokens: [
          { x: [-0.2, 0.9], score: null },
          { x: [-0.6, 0.1], score: null },
          { x: [-1.5, -0.4], score: null },
          { x: [-0.2, -0.9], score: null },
        ],
      },
      {
        label: 1,
        query: [0.28, 0.96],
        tokens: [
          { x: [0.4, 0.7], score: null },
          { x: [1.9, 0.3], score: null },
          { x: [1.4, -0.1], score: null },
          { x: [1.3, -0.8], score: null },
        ],
      },
    ],
  },
};
