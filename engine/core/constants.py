"""All numbers by which the core decides: one table, with units, and what changes where one is higher or lower.

Modules read them by name when they decide (`constants.BUSY_SHARE`), so a bench switches a rule off here. What a user
may set is in `engine/config.py`.
"""

from typing import Final

# --- whose turn it is (policy.py) -----------------------------------------------------------------------------

# A new request that has waited for so long is overtaken by no listener. Higher -> fewer gaps under load; lower -> no
# late start is very late.
PATIENCE_S: Final = 1.0
# A listener with more than this, and than the guard, can wait: several blocks' time.
# Higher -> clauses hold memory longer, new requests wait for more of others' blocks; lower -> less reserve.
COMFORT_S: Final = 1.0
# A listener who has less than this to play overtakes new requests.
# Higher -> fewer underruns under load; lower -> sooner first audio under load.
GUARD_S: Final = 0.15
# A GPU's guard while the listener's next clause waits for room in the models; on a CPU it is the whole lead.
# Higher -> fewer underruns; lower -> new requests are begun sooner.
ROOM_GUARD_S: Final = 1.0
# A GPU's guard where few utterances have work: a block takes a fourth of the time there. A whole text's first block is
# heard for hardly longer than the other guard. Simulated, 60 ms are as good (docs/adr/0007).
# Higher -> new requests wait for listeners; lower -> a late block is a gap.
LIGHT_GUARD_S: Final = 0.08
# Utterances with work due at a time: from MANY_DUE on the whole guard holds, below FEW_DUE the light one again.
# Higher -> the light guard holds under more load; lower -> new requests are heard later under less.
MANY_DUE: Final = 17
FEW_DUE: Final = 9

# --- the lanes' next steps (policy.py) ------------------------------------------------------------------------

# Prompts that one LLM step reads. Higher -> a burst of new requests is through sooner; lower -> no next token
# waits long for it.
MAX_PREFILLS: Final = 8
# Rows of the next LLM step, from which on none is launched ahead of its turn beside the flow. The device has work until
# the host has looked at the last one, and more rows gather. Higher -> the flow is slowed down more; lower -> where rows
# are few each token waits for the host.
ENOUGH_ROWS: Final = 16
# While new requests wait for tokens and a step has more rows than that, one step of so many takes buffered ones along.
# The others have few rows: they take half as long and leave the flow more. Higher -> clauses of buffered ones
# hold memory longer; lower -> new requests' tokens take longer (docs/adr/0009).
BUFFERED_STEP_EVERY: Final = 4
# Ready blocks, in batches, that keep the flow busy while the LLM waits and comes back. Lower -> the flow runs out;
# higher -> the LLM steps for few rows at a time.
ENOUGH_BATCHES: Final = 2
# Background work that goes along where others have work: blocks of a listeners' batch, and rows of every fourth LLM
# step where ENOUGH_ROWS leaves fewer. Higher -> jobs get more beside many streams; lower -> these are heard sooner
# (docs/adr/0009).
BACKGROUND_ALONG: Final = 2
# Utterances with work due, as a share of a batch's rows. From there on blocks of buffered ones go along with a new
# request's: it or the next would wait for them in any case. And the flow is launched ahead for listeners, too. Higher
# -> new requests wait for more batches at heavy loads; lower -> they wait for more rows, and for what was launched
# ahead, at light ones (docs/adr/0009).
BUSY_SHARE: Final = 0.5
# Euler steps in one launch of a batch for listeners. Higher -> a new request, or an underrun that is near,
# waits longer for what is under way; lower -> the device waits for the thread (docs/adr/0009).
STEPS_FOR_LISTENERS: Final = 3
# Frames times steps of any launch: 10 ms of a GPU at most. Higher -> others wait longer; lower -> more launches.
MAX_FRAME_STEPS: Final = 4000
# Euler steps of speech between two of a new voice's prompt, where speech never rests. Lower -> more is taken from
# listeners; higher -> a voice takes longer to be there on a full engine.
STEPS_BEFORE_NEW_VOICE: Final = 8
# Steps before a known voice's prompt that an utterance waits for. Lower -> others' speech is made later; higher -> a
# voice that gave its room back is heard later on a full engine.
STEPS_BEFORE_AWAITED_VOICE: Final = 2

# --- room in the models ---------------------------------------------------------------------------------------

# Text tokens that a pass is expected to get in all, when only its first words are known. In bistream that is a sentence
# or two, and a part of a sentence that grows. Higher -> fewer clauses at once; lower -> more of them make way in the
# middle.
STREAMED_TEXT_TOKENS: Final = 30
GROWING_TEXT_TOKENS: Final = 16
# Speech tokens, a second of them, that a clause which was set aside is expected to get beyond those it has, while its
# pass runs. Higher -> it waits for more room; lower -> it makes way again.
MORE_TOKENS: Final = 25

# --- reading of text ------------------------------------------------------------------------------------------

# Reading between two steps. Lower -> text that many send at once is read later; higher -> it is felt in others' speech.
READING_S: Final = 0.001
# Time for first clauses: a burst of new requests is read in few steps, so that their passes begin together.
FIRST_READING_S: Final = 0.005
# Bites within which a first clause is read: the longest is cut in four. Text that needs more is in no hurry.
FIRST_BITES: Final = 6

# Half a word or number after which nothing has come for so long is said as it stands. Higher -> the last word of a
# writer who sends neither a blank nor a flush is heard later; lower -> a word is torn where a model pauses within it.
HALF_WORD_S: Final = 2.0

# --- listeners (listener.py, growth.py) -----------------------------------------------------------------------

# For each time that its player had nothing to play: so much less than it has is counted on. Lower -> it has an underrun
# again on the same network; higher -> the others wait for a listener who may not need it.
RESERVE_PER_UNDERRUN_S: Final = 0.25
MAX_RESERVE_S: Final = 1.0
# The longest packet with which a short first block is heard sooner: it has five of these. In longer ones, hardly any of
# it is heard. Higher -> gaps after first blocks; lower -> whole texts are heard later.
SHORT_FRAME_MS: Final = 20

# --- speaking while the sentence grows (growth.py) ------------------------------------------------------------

# Share of what the known words are worth that may be said of them while more follow. It is for a voice that was not
# tuned, at the pace of its prompt. Higher -> speech that drags and pauses; lower -> later first sound (docs/adr/0006).
UNTUNED_SHARE: Final = 0.8
# Pace at which an agent's first words are assumed to come, before there is more than one to judge by: ordinary LLM
# speed. Higher -> speech begins with fewer words, and may wait; lower -> it begins later.
ASSUMED_LETTERS_PER_S: Final = 90.0
LETTERS_PER_WORD: Final = 5.0
# How much that assumption weighs, in seconds of text seen. Lower -> one slow word delays the start; higher -> a slow
# writer is taken for a fast one, and its listener waits between the first block and the second.
ASSUMED_FOR_S: Final = 0.1
# No writer is taken to be faster: words that came at once may have been held back on their way. Higher -> one that
# writes in bursts is overtaken by the first block; lower -> one that writes fast is heard later.
FASTEST_LETTERS_PER_S: Final = 125.0
# Pieces so soon after one another were sent together. Higher -> a quick start is one piece, and a slow writer is
# overtaken; lower -> pieces that one packet brought are taken for an uneven hand.
TOGETHER_S: Final = 0.002
# A writer is as uneven as chance (intervals that vary by their mean) until so many words have shown otherwise. Higher
# -> even writers are heard later; lower -> two even intervals are taken for a habit.
UNEVEN_FOR_WORDS: Final = 0.1
# How much the letters of a word vary, as the square of their deviation over their mean. Higher -> later first sound;
# lower -> more writers are overtaken by the first block.
WORD_VARIATION: Final = 0.05
# So many standard deviations fewer words are counted on than are to be expected. Higher -> uneven writers are heard
# later; lower -> more of them are overtaken by the first block (docs/adr/0006).
DEVIATIONS: Final = 1.5
# A first block may have so many times the share of what the words but the last are worth. Or it has the share of what
# all are worth. No start takes a word longer for that. Higher -> first sound sooner, and words
# are said of which the next is not known; lower -> later (docs/adr/0006).
FIRST_TIMES: Final = 1.25
# The share of what all known words are worth, for a listener who is about to have an underrun. Speech that drags a
# little is better than a gap. Higher -> it drags more; lower -> gaps (docs/adr/0006).
UNDERRUN_SHARE: Final = 1.25
# Share of the words but the last for the second block, when the first is begun and they are only promised. They are
# promised with deviations to spare, and the last of them comes along. Higher -> first sound sooner; lower -> fewer that
# wait for the second block (docs/adr/0006).
PROMISED_SHARE: Final = 1.2
# A writer that has written nothing for so long pauses. Higher -> speech runs past its words while it waits for more;
# lower -> gaps where a slow writer's next word would have come.
PAUSE_S: Final = 0.35
# The next block of a growing sentence is begun when its listener has so much left to hear, beside a block's time.
# Higher -> survives a slow moment; lower -> more words are known when a block is made.
GROWING_LEAD_S: Final = 0.3
# So many mean intervals of its words are a pause of a slow writer, where that is longer than `stall_ms`; up to
# MAX_PAUSE_S. Higher -> the words before a real pause are said later; lower -> the words of a slow writer are said one
# by one, which drags.
PAUSE_TIMES: Final = 2.0
MAX_PAUSE_S: Final = 2.5
# A writer is slow whose words come with longer intervals, in the mean: about as fast as they are said. Higher -> speech
# is stretched over its gaps; lower -> gaps where a little stretching would have done.
SLOW_S: Final = 0.28
# How soon "about to have an underrun" is. Higher -> speech is made early more often; lower -> the block comes too late.
UNDERRUN_S: Final = 0.05
# When a sentence is begun, a later block is expected to take so many mean times of blocks lately. The longest is most
# often one that no listener needed yet. Higher -> later first sound; lower -> gaps after the first block.
EXPECTED_TIMES: Final = 2.0
# Weight of one more block in that mean. Lower -> load that comes in waves is met late; higher -> one slow block makes
# all new ones begin late.
NEWS_SHARE: Final = 0.05
# So many mean deviations above their mean, later blocks still take now and then. Higher -> growing speech begins later;
# lower -> gaps after the first block on an engine that takes about as long as that is heard.
LATER_DEVIATIONS: Final = 1.0
# After so long, half of what a slow block took is forgotten. Higher -> one slow block makes the next ones early for
# longer; lower -> load that comes in waves is met late.
HALF_LIFE_S: Final = 1.0
# The engine is strained where a first block takes longer, and so many times what one takes at the quickest. A start
# with few words would only have all wait longer then. Higher -> listeners have gaps before new requests wait; lower ->
# speech begins later that could begin early.
STRAINED_S: Final = 0.35
STRAINED_TIMES: Final = 4
