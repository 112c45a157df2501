// Two canvases: the waveform around the place that is heard, and how much was buffered lately.

const WINDOW_MS = 8_000; // of the waveform, seen at once
const PLAYHEAD_AT = 0.4; // of the window, once speech is longer
const PEAK_MS = 10;
const BAR_PX = 3;
const GAP_PX = 1.5;
const HISTORY_MS = 10_000;
const LEAST_SCALE_MS = 500; // a buffer of less does not fill the picture

class Drawing {
  #canvas;

  constructor(canvas) {
    this.#canvas = canvas;
    const redraw = () => this.draw();
    new ResizeObserver(redraw).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  }

  /** An empty canvas of its size on the screen, in CSS pixels, and the page's colours by name. */
  begin() {
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    const [numColumns, numRows] = [width, height].map((px) => Math.round(px * devicePixelRatio));
    if (this.#canvas.width !== numColumns) this.#canvas.width = numColumns;
    if (this.#canvas.height !== numRows) this.#canvas.height = numRows;
    const pen = this.#canvas.getContext("2d");
    pen.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const style = getComputedStyle(this.#canvas);
    return { pen, width, height, color: (name) => style.getPropertyValue(`--${name}`) };
  }
}

export class Waveform extends Drawing {
  #peaks = [];
  #underrunsMs = [];
  #playedMs = 0;

  clear() {
    this.#peaks = [];
    this.#underrunsMs = [];
    this.moveTo(0);
  }

  receive(peaks) {
    this.#peaks.push(...peaks);
  }

  markUnderrun(playedMs) {
    this.#underrunsMs.push(playedMs);
  }

  moveTo(playedMs) {
    this.#playedMs = playedMs;
    this.draw();
  }

  draw() {
    const { pen, width, height, color } = this.begin();
    const startMs = Math.max(0, this.#playedMs - PLAYHEAD_AT * WINDOW_MS);
    const toX = (ms) => ((ms - startMs) / WINDOW_MS) * width;
    const barMs = ((BAR_PX + GAP_PX) / width) * WINDOW_MS;
    const [line, heard, buffered] = ["line", "accent", "accent-soft"].map(color);
    // Bars stay where they are in the audio, so that they move with it and do not shimmer.
    for (let n = Math.floor(startMs / barMs); n * barMs < startMs + WINDOW_MS; n++) {
      const fromMs = n * barMs;
      const peak = this.#peakIn(fromMs, fromMs + barMs);
      const barHeight = peak === null ? 1 : Math.max(3, peak * height * 0.95);
      pen.fillStyle = peak === null ? line : fromMs < this.#playedMs ? heard : buffered;
      pen.beginPath();
      pen.roundRect(toX(fromMs), (height - barHeight) / 2, BAR_PX, barHeight, 1.5);
      pen.fill();
    }
    pen.fillStyle = color("danger");
    for (const ms of this.#underrunsMs) pen.fillRect(toX(ms) - 1, 0, 2, height);
    if (this.#peaks.length > 0) {
      pen.fillStyle = color("text");
      pen.fillRect(toX(this.#playedMs) - 0.75, 0, 1.5, height);
    }
  }

  /** Null where nothing has come. */
  #peakIn(fromMs, toMs) {
    const first = Math.floor(fromMs / PEAK_MS);
    const covered = this.#peaks.slice(first, Math.max(first + 1, Math.floor(toMs / PEAK_MS)));
    return covered.length === 0 ? null : Math.min(1, Math.max(...covered));
  }
}

export class BufferHistory extends Drawing {
  #points = []; // {atMs, bufferMs}

  clear() {
    this.#points = [];
    this.draw();
  }

  add(bufferMs) {
    const atMs = performance.now();
    this.#points.push({ atMs, bufferMs });
    while (this.#points[0].atMs < atMs - HISTORY_MS) this.#points.shift();
    this.draw();
  }

  draw() {
    const { pen, width, height, color } = this.begin();
    pen.fillStyle = color("line");
    pen.fillRect(0, height - 1, width, 1);
    if (this.#points.length === 0) return;
    const endMs = this.#points.at(-1).atMs;
    const scaleMs = Math.max(LEAST_SCALE_MS, ...this.#points.map(({ bufferMs }) => bufferMs));
    const toX = (atMs) => width - ((endMs - atMs) / HISTORY_MS) * width;
    pen.fillStyle = color("accent-soft");
    pen.beginPath();
    pen.moveTo(toX(this.#points[0].atMs), height);
    for (const { atMs, bufferMs } of this.#points) pen.lineTo(toX(atMs), height - (bufferMs / scaleMs) * height);
    pen.lineTo(width, height);
    pen.fill();
  }
}
