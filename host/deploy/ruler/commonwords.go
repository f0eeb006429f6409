package ruler

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/pyrandom"
)

const commonCount = 10

var commonFrame = frame{
	body: "Below is a numbered list of words. In these words, some appear more often than others. " +
		"Memorize the ones that appear most often.\n{context}\n" +
		"Question: What are the 10 most common words in the above list?",
	prefix: " Answer: The top 10 words that appear most often in the list are:",
}

// commonWords asks for the ten most frequent words in a list
// (scripts/data/synthetic/common_words_extraction.py).
func commonWords(s *session) (next, error) {
	words := slices.Concat(s.Words.Nouns, s.Words.Adjectives, s.Words.Verbs)
	d := &commonDraw{
		session: s, example: wordList{40, 10, 3}, common: 30, rest: 3, words: sortedSet(words)}
	if s.short() {
		d.example, d.common, d.rest = wordList{20, 3, 1}, 6, 1
	}
	pyrandom.Shuffle(s.fresh(), d.words)
	f := &filler{session: s, minUnits: 10, probeUnits: 4096, floor: true, build: d.prompt}
	return f.start()
}

type wordList struct{ words, common, rest int }

type commonDraw struct {
	*session
	example      wordList
	common, rest int
	words        []string
}

func (d *commonDraw) prompt(_, n int) (Sample, error) {
	list, answers, err := d.list(d.example)
	if err != nil {
		return Sample{}, err
	}
	example := d.fill(commonFrame, "{context}", list).Prompt() + " " + numbered(answers)
	if list, answers, err = d.list(wordList{n, d.common, d.rest}); err != nil {
		return Sample{}, err
	}
	p := d.fill(commonFrame, "{context}", list)
	p.Input = example + "\n" + p.Input
	p.Outputs = answers
	return p, nil
}

// list draws a list of words in random order, and returns it and its common words.
func (d *commonDraw) list(l wordList) (list string, common []string, err error) {
	from := d.words
	if l.words > len(from) {
		from = d.Words.English
	}
	if l.words > len(from) {
		return "", nil, fmt.Errorf("%d words are needed, but the long list of words (%s) has %d",
			l.words, englishFile, len(from))
	}
	drawn := lists.Map(d.rng.Sample(len(from), l.words), func(i int) string { return from[i] })
	common = drawn[:min(commonCount, len(drawn))]
	all := slices.Concat(slices.Repeat(common, l.common),
		slices.Repeat(drawn[len(common):], l.rest))
	pyrandom.Shuffle(d.fresh(), all)
	return numbered(all), common, nil
}

func numbered(list []string) string {
	lines := make([]string, len(list))
	for i, word := range list {
		lines[i] = fmt.Sprintf("%d. %s", i+1, word)
	}
	return strings.Join(lines, " ")
}
