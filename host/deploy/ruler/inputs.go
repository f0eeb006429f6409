package ruler

import (
	"slices"
	"strings"
	"sync"

	"github.com/cage-qat/cage/internal/pyrandom"
)

// Inputs are the texts from other sources that prompts are made of. RULER takes word
// lists from the package wonderwords, the essays of Paul Graham, SQuAD 2.0 and HotpotQA.
type Inputs struct {
	Words  *Words
	Essay  string     // empty: none
	Squad  *Documents // nil: none
	Hotpot *Documents // nil: none

	sources map[string]string // the hashes of what was read
}

// Words are lists of words.
type Words struct {
	Nouns, Adjectives, Verbs []string
	// English is the long list, for texts that need more words than the other lists have.
	English []string
	// MadeUp names the lists whose words were not supplied by the user, but made up here.
	MadeUp []string

	once   sync.Once
	joined []string
}

// pairs are all adjectives with all nouns, in their order.
func (w *Words) pairs() []string {
	w.once.Do(func() {
		for _, adjective := range w.Adjectives {
			for _, noun := range w.Nouns {
				w.joined = append(w.joined, adjective+"-"+noun)
			}
		}
		w.joined = sortedSet(w.joined)
	})
	return w.joined
}

// all are nouns, adjectives and verbs, in their order.
func (w *Words) all() []string { return sortedSet(slices.Concat(w.Nouns, w.Adjectives, w.Verbs)) }

func sortedSet(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// MadeUpWords returns lists of words made of syllables, for users who have no others.
// They are always the same, and no word is in two of them.
func MadeUpWords() *Words {
	short := syllables(2)
	return &Words{Nouns: short[:600], Adjectives: short[600:900], Verbs: short[900:1200], English: syllables(3),
		MadeUp: []string{nounFile, adjectiveFile, verbFile, englishFile}}
}

// syllables are all words of n syllables, each a consonant and a vowel, in a random order.
func syllables(n int) []string {
	list := []string{""}
	for range n {
		var longer []string
		for _, begin := range list {
			for _, consonant := range strings.Split("bdfgklmnprstvz", "") {
				for _, vowel := range strings.Split("aeiou", "") {
					longer = append(longer, begin+consonant+vowel)
				}
			}
		}
		list = longer
	}
	pyrandom.Shuffle(pyrandom.New(int64(n)), list)
	return list
}

// need is an input that a task cannot do without.
type need int

const (
	needWords need = iota
	needEnglish
	needEssay
	needSquad
	needHotpot
)

// Missing names the input that a task lacks; empty if it lacks none.
func (i Inputs) Missing(t Task) string {
	for _, n := range t.needs {
		switch {
		case (n == needWords || n == needEnglish) && i.Words == nil:
			return "words"
		case n == needEssay && strings.TrimFunc(i.Essay, isSpace) == "":
			return "an essay"
		case n == needSquad && i.Squad == nil:
			return "SQuAD"
		case n == needHotpot && i.Hotpot == nil:
			return "HotpotQA"
		}
	}
	return ""
}

// Substitutions describes what in these tasks differs from RULER's own inputs.
func (i Inputs) Substitutions(tasks []Task) []string {
	var list []string
	uses := func(n need) bool {
		return slices.ContainsFunc(tasks, func(t Task) bool { return slices.Contains(t.needs, n) })
	}
	if i.Words != nil && uses(needWords) {
		madeUp := slices.DeleteFunc(slices.Clone(i.Words.MadeUp), func(name string) bool { return name == englishFile && !uses(needEnglish) })
		if len(madeUp) > 0 {
			list = append(list, "made-up words of consonants and vowels stand for "+strings.Join(madeUp, ", "))
		}
	}
	if uses(needEssay) {
		list = append(list, "sentences of the essay end at . ! or ? before white space, where RULER asks NLTK's punkt")
	}
	return list
}
