// The types of clients/livekit-node beside LiveKit's own; compiled by test_plugin_livekit_node.py.

import { tts, voice } from "@livekit/agents";
import { TTS } from "livekit-agents-plugin-voicegate";
const mine: tts.TTS = new TTS({ url: "ws://127.0.0.1:8080", voice: "woman" });
new voice.AgentSession({ tts: mine, useTtsAlignedTranscript: true });
(mine as TTS).updateOptions({ speed: 1.2 });
// @ts-expect-error no such option
new TTS({ colour: "red" });
