package ruler

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/cage-qat/cage/internal/pyrandom"
)

const (
	codedLetters = 6
	zeta2        = math.Pi * math.Pi / 6 // ζ(2), the sum of k⁻² over all k
)

var frequentFrame = frame{
	body: "Read the following coded text and track the frequency of each coded word. " +
		"Find the three most frequently appeared coded words. {context}\n" +
		"Question: Do not provide any explanation. Please ignore the dots '....'. " +
		"What are the three most frequently appeared words in the above coded text?",
	prefix: " Answer: According to the coded text above, " +
		"the three most frequently appeared words are:",
}

// frequentWords asks for the three most frequent words of a text with Zipf-distributed words
// (scripts/data/synthetic/freq_words_extraction.py, α = 2).
func frequentWords(s *session) (next, error) {
	maxTokens := s.length - s.newTokens
	d := &frequentDraw{
		session: s, maxTokens: maxTokens, vocabulary: maxTokens / 50, step: maxTokens / 32}
	if d.vocabulary < 4 {
		return nil, fmt.Errorf("the text would have %d different words: choose a length of %d or more",
			max(0, d.vocabulary), 4*50+s.newTokens)
	}
	// The text grows until it is too long; the last size that fits is used for all samples.
	vocabulary := d.draw()
	for words := maxTokens / codedLetters; ; words += d.step {
		_, tokens, err := d.prompt(vocabulary, words)
		if err != nil {
			return nil, err
		}
		if tokens >= maxTokens {
			return func(int) (Sample, error) { return d.sample(words - d.step) }, nil
		}
	}
}

type frequentDraw struct {
	*session
	maxTokens  int // tokens of a prompt without the answer
	vocabulary int // number of different words
	step       int
}

// sample draws a prompt of at most n words; fewer if it would be too long.
func (d *frequentDraw) sample(n int) (Sample, error) {
	vocabulary := d.draw()
	for ; n > 0; n -= d.step {
		p, tokens, err := d.prompt(vocabulary, n)
		if err != nil || tokens <= d.maxTokens {
			return p, err
		}
	}
	return Sample{}, fmt.Errorf("no text is short enough: choose a larger length")
}

var lowerCase = strings.Split("abcdefghijklmnopqrstuvwxyz", "")

// draw draws distinct words, the most frequent first. The first is "...", which does not count.
func (d *frequentDraw) draw() []string {
	seen := map[string]bool{}
	for i := 0; i < d.vocabulary || len(seen) < d.vocabulary; i++ {
		seen[strings.Join(pyrandom.Choices(d.rng, lowerCase, codedLetters), "")] = true
	}
	list := slices.Sorted(maps.Keys(seen))
	pyrandom.Shuffle(d.fresh(), list)
	list[0] = "..."
	return list
}

// prompt returns a sample with a text of about n words, and the number of its tokens.
func (d *frequentDraw) prompt(vocabulary []string, n int) (Sample, int, error) {
	var text []string
	for i, word := range vocabulary {
		copies := int(float64(n) * math.Pow(float64(i+1), -2) / zeta2)
		text = append(text, slices.Repeat([]string{word}, copies)...)
	}
	pyrandom.Shuffle(d.fresh(), text)
	p := d.fill(frequentFrame, "{context}", strings.Join(text, " "))
	p.Outputs = slices.Clone(vocabulary[1:4])
	tokens, err := d.count(p.Prompt())
	return p, tokens, err
}
