package ruler

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/pyrandom"
)

// Kinds of haystacks: repeated noise sentences, an essay, or other needles.
const (
	noise   = "noise"
	essay   = "essay"
	needles = "needle"
)

// Kinds of keys and values, as named in prompts.
const (
	words   = "words"
	numbers = "numbers"
	uuids   = "uuids"
)

// niah asks for needles in a haystack (scripts/data/synthetic/niah.py).
type niah struct {
	haystack, keyKind, valueKind string
	keys, values, queries        int // numbers; values is per key
}

const (
	noiseLine = "The grass is green. The sky is blue. The sun is yellow. " +
		"Here we go. There and back again."
	needle = "One of the special magic {kind} for {key} is: {value}."
)

var niahFrame = frame{
	body: "Some special magic {kind} are hidden within the following text. " +
		"Make sure to memorize it. " +
		"I will quiz you about the {kind} afterwards.\n{context}\n" +
		"What are all the special magic {kind} for {query} mentioned in the provided text?",
	prefix: " The special magic {kind} for {query} mentioned in the provided text are",
}

func (t niah) task(name string, needs ...need) Task {
	if t.keyKind == words {
		needs = append(needs, needWords)
	}
	return Task{Name: name, NewTokens: 128, start: t.start, needs: needs}
}

func (t niah) start(s *session) (next, error) {
	t.keys = max(t.keys, t.queries)
	d := &niahDraw{session: s, niah: t}
	if t.keyKind == words {
		d.words = s.Words.pairs()
	}
	minUnits := 25
	switch {
	case t.haystack == essay:
		minUnits, d.essay = 500, splitSpace(s.Essay)
	case s.short():
		minUnits = 5
	}
	f := &filler{session: s, minUnits: minUnits, probeUnits: minUnits, build: d.prompt}
	return f.start()
}

type niahDraw struct {
	*session
	niah
	words []string // words to draw keys from
	essay []string // words of the essay
}

func (d *niahDraw) prompt(_, n int) (Sample, error) {
	var keys, lines []string
	var values [][]string
	for range d.keys {
		key := d.draw(d.keyKind)
		var list []string
		for range d.values {
			value := d.draw(d.valueKind)
			list, lines = append(list, value), append(lines, d.needle(key, value))
		}
		keys, values = append(keys, key), append(values, list)
	}
	pyrandom.Shuffle(d.fresh(), lines)
	context, err := d.hide(lines, n)
	if err != nil {
		return Sample{}, err
	}
	var asked, answers []string
	for _, i := range d.rng.Sample(len(keys), d.queries) {
		asked, answers = append(asked, keys[i]), append(answers, values[i]...)
	}
	query := asked[0] // or "a, b, and c"
	if last := len(asked) - 1; last > 0 {
		query = strings.Join(asked[:last], ", ") + ", and " + asked[last]
	}
	f, kind := niahFrame, d.valueKind
	if d.queries*d.values == 1 {
		kind = strings.TrimSuffix(kind, "s")
		for _, r := range [][2]string{{"Some", "A"}, {"are all", "is"}, {"are", "is"}} { // as RULER does
			f.body = strings.ReplaceAll(f.body, r[0], r[1])
			f.prefix = strings.ReplaceAll(f.prefix, r[0], r[1])
		}
	}
	prompt := d.fill(f, "{kind}", kind, "{context}", context, "{query}", query)
	prompt.Outputs = answers
	return prompt, nil
}

func (d *niahDraw) draw(kind string) string {
	switch kind {
	case words:
		return pyrandom.Choice(d.rng, d.words)
	case numbers:
		return strconv.Itoa(d.rng.RandInt(1_000_000, 9_999_999))
	}
	// Python's uuid.UUID(int=getrandbits(128), version=4)
	b := d.rng.GetRandBits(128).FillBytes(make([]byte, 16))
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func (d *niahDraw) needle(key, value string) string {
	return strings.NewReplacer("{kind}", d.valueKind, "{key}", key, "{value}", value).Replace(needle)
}

// hide inserts lines, the needles, into a haystack of n units.
func (d *niahDraw) hide(lines []string, n int) (string, error) {
	if d.haystack == essay {
		return d.hideInEssay(lines, n), nil
	}
	hay := slices.Repeat([]string{noiseLine}, n)
	if d.haystack == needles {
		for i := range hay {
			key := d.draw(d.keyKind)
			hay[i] = d.needle(key, d.draw(d.valueKind))
		}
	}
	if n < len(lines) {
		return "", fmt.Errorf("%d needles do not fit into %d lines: choose a larger length",
			len(lines), n)
	}
	positions := d.rng.Sample(n, len(lines))
	slices.Sort(positions)
	slices.Reverse(positions)
	for i, position := range positions {
		hay = slices.Insert(hay, position, lines[i])
	}
	return strings.Join(hay, "\n"), nil
}

// depths holds the positions of needles in an essay, in percent: 40 values from 0 to 100,
// equidistant before rounding.
var depths = func() (list [40]int) {
	for i := range list {
		list[i] = int(math.RoundToEven(float64(i) * (100.0 / 39)))
	}
	return list
}()

// hideInEssay inserts lines, the needles, between the sentences of the first n words of the essay,
// which is repeated if it is too short.
func (d *niahDraw) hideInEssay(lines []string, n int) string {
	text := lists.Make(n, func(i int) string { return d.essay[i%len(d.essay)] })
	sentences := splitSentences(strings.Join(text, " "))
	positions := lists.Map(d.rng.Sample(len(depths), len(lines)), func(i int) int {
		return int(float64(len(sentences)) * (float64(depths[i]) / 100))
	})
	slices.Sort(positions)
	var parts []string
	last := 0
	for i, position := range positions {
		parts = append(parts, strings.Join(sentences[last:position], " "), lines[i])
		last = position
	}
	return strings.Join(append(parts, strings.Join(sentences[last:], " ")), " ")
}
