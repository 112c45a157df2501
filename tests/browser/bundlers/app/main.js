// An app as a bundler's user writes it: the player is a package, and the address asks for a gateway and a decoder.

import { Player } from "voicegate-player";

const [url, decoder] = location.hash.slice(1).split(",");

document.addEventListener("click", async () => {
  const player = new Player({ url, decoder });
  const context = player.open();
  context.say("one two three");
  context.end();
  const { reason, error, playedMs, audioMs } = await context.finished;
  document.title = JSON.stringify({ reason, error, playedMs, audioMs, decoder: player.decoder });
});
