// Speech as a file, and as the commands that make it without this page.

/** A request to /v1/audio/speech for what the page says; undefined fields are the server's. */
export function speechRequest({ text, voice, language, speed, seed }, format) {
  return { input: text, voice, response_format: format, speed, language, seed };
}

/** Saves what the gateway makes of `request`. Throws with the gateway's own words where it refuses. */
export async function save(request) {
  const answer = await fetch(`v1/audio/speech${location.search}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(request),
  });
  if (!answer.ok) throw new Error(await problemOf(answer));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = `speech.${request.response_format}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // a browser may begin to read it late
  return link.download;
}

/** In a gateway's words, why it refused. */
export async function problemOf(answer) {
  const body = await answer.text();
  try {
    return JSON.parse(body).error.message;
  } catch {
    return body.trim() || `HTTP ${answer.status}`;
  }
}

/** {curl, python}: commands that make a file of it. */
export function commands(settings) {
  const asked = new URLSearchParams(location.search);
  const asksForKey = ["access_token", "api_key"].some((name) => asked.has(name));
  const address = new URL("v1", location.href).href.replace(/\?.*/, "");
  return { curl: curl(settings, address, asksForKey), python: python(settings, address, asksForKey) };
}

function curl(settings, address, asksForKey) {
  const body = JSON.stringify(speechRequest(settings, "wav"));
  return [
    `curl ${quoted(`${address}/audio/speech`)}`, // a shell reads brackets of an IPv6 address, and more
    ...(asksForKey ? ['-H "Authorization: Bearer $VOICEGATE_API_KEY"'] : []),
    "-H 'Content-Type: application/json'",
    `-d ${quoted(body)}`,
    "-o speech.wav",
  ].join(" \\\n  ");
}

/** For a shell. A quote in its quotes: they end, it stands alone, and they begin again. */
function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function python(settings, address, asksForKey) {
  const { text, voice, language, speed, seed } = settings;
  const extra = JSON.stringify({ seed, language });
  const key = asksForKey ? 'os.environ["VOICEGATE_API_KEY"]' : '"none"';
  return [
    ...(asksForKey ? ["import os", ""] : []),
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url=${JSON.stringify(address)}, api_key=${key})`,
    "with client.audio.speech.with_streaming_response.create(",
    `    model="tts-1", voice=${JSON.stringify(voice ?? "")}, response_format="wav", speed=${speed},`,
    `    input=${JSON.stringify(text)},`,
    `    extra_body=${extra},`,
    ") as answer:",
    '    answer.stream_to_file("speech.wav")',
  ].join("\n");
}
