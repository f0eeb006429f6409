package main

import (
	"go/scanner"
	"go/token"
	"math/rand/v2"
	"slices"
	"strings"
)

// Sizes chosen so that a question and its answer fit in 128 bytes.
const (
	noiseBytes = 80  // around needles
	clozeBytes = 108 // before a cloze
	longest    = 16  // of its answers
	shortest   = 3
)

// slots lists keys with their possible values. No two keys share a value, so that a single lookup
// in the context finds it. A model with two layers learns this within a few hundred steps, but not
// the general lookup, in which any key can have any value.
var slots = []struct{ key, values string }{
	{"A", "0123"}, {"B", "4567"}, {"C", "wxyz"}, {"D", "@#$%"}}

// needleSlots is the number of slots used among lines of source. Their values are rare there.
const needleSlots = 2

// pair is a slot with one of its values.
type pair struct {
	slot  int
	value byte
}

func (p pair) String() string { return slots[p.slot].key + string(p.value) }

// pairs returns the first n slots in random order, with random values.
func pairs(r *rand.Rand, n int) (list []pair) {
	for _, i := range r.Perm(n) {
		list = append(list, pair{i, slots[i].values[r.IntN(choiceCount)]})
	}
	return list
}

// stated formats pairs, as in "A2D@B7".
func stated(list []pair) string {
	var b strings.Builder
	for _, p := range list {
		b.WriteString(p.String())
	}
	return b.String()
}

// recallText returns a line of pairs followed by repetitions in random order, as in
// "A2B7:B7A2A2B7".
func recallText(r *rand.Rand) string {
	list := pairs(r, len(slots))
	text := stated(list) + ":"
	for range 4 {
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		text += stated(list)
	}
	return text + "\n"
}

// lookup returns a question for the value of a pair in text. The choices are all values of the
// pair's key.
func lookup(r *rand.Rand, text string, list []pair) item {
	p := list[r.IntN(len(list))]
	values := slots[p.slot].values
	return item{text + slots[p.slot].key, strings.Split(values, ""),
		strings.IndexByte(values, p.value)}
}

// marked is the prefix of lines that contain a pair, both in the text and in the question.
const marked = "//! "

// hidden returns lines of source code into which marked lines, each with a pair, are inserted.
func hidden(r *rand.Rand, sources []string) (text string, list []pair) {
	list = pairs(r, needleSlots)
	lines := strings.Split(snippet(r, sources, noiseBytes), "\n")
	for _, p := range list {
		lines = slices.Insert(lines, r.IntN(len(lines)+1), marked+p.String())
	}
	return strings.Join(lines, "\n") + "\n", list
}

// needleText returns a training text that asks for every hidden pair twice.
func needleText(r *rand.Rand, sources []string) string {
	text, list := hidden(r, sources)
	for range 2 {
		for _, i := range r.Perm(len(list)) {
			text += marked + list[i].String() + "\n"
		}
	}
	return text
}

// quotable reports whether [snippet] can take noiseBytes of ASCII from a source file.
func quotable(source string) bool {
	ascii := 0
	for i := range len(source) - 1 { // snippet does not take the last byte
		if ascii++; source[i] >= 0x80 {
			ascii = 0
		}
		if ascii == noiseBytes {
			return true
		}
	}
	return false
}

// snippet returns an ASCII part of a random source file. At least one must be [quotable].
func snippet(r *rand.Rand, sources []string, size int) string {
	for {
		s := sources[r.IntN(len(sources))]
		if len(s) <= size {
			continue
		}
		at := r.IntN(len(s) - size)
		if text := s[at : at+size]; !strings.ContainsFunc(text, func(c rune) bool { return c >= 0x80 }) {
			return text
		}
	}
}

// clozes returns at most n questions for identifiers that also occur shortly before the gap. The
// other choices are identifiers from the same file.
func clozes(r *rand.Rand, sources []string, n int) (list []item) {
	for _, k := range r.Perm(len(sources)) {
		places, names := identifiers(sources[k])
		for range 8 { // of each file
			if len(places) == 0 || len(list) == n {
				break
			}
			p := places[r.IntN(len(places))]
			before := sources[k][max(0, p.at-clozeBytes):p.at]
			if p.at < clozeBytes || !strings.Contains(before, p.name) ||
				strings.ContainsFunc(before, func(c rune) bool { return c >= 0x80 }) {
				continue
			}
			var wrong []string
			for _, i := range r.Perm(len(names)) {
				if names[i] != p.name {
					wrong = append(wrong, names[i])
				}
			}
			if len(wrong) >= choiceCount-1 {
				gold := r.IntN(choiceCount)
				list = append(list,
					item{before, slices.Insert(wrong[:choiceCount-1:choiceCount-1], gold, p.name), gold})
			}
		}
	}
	return list
}

// place is an occurrence of an identifier.
type place struct {
	name string
	at   int
}

// identifiers returns the occurrences of a file's identifiers that can be answers, and the distinct
// identifiers.
func identifiers(source string) (places []place, names []string) {
	set := token.NewFileSet()
	file := set.AddFile("", -1, len(source))
	var s scanner.Scanner
	s.Init(file, []byte(source), func(token.Position, string) {}, 0)
	for {
		pos, tok, name := s.Scan()
		if tok == token.EOF {
			return places, names
		}
		if tok == token.IDENT && len(name) >= shortest && len(name) <= longest {
			places = append(places, place{name, file.Offset(pos)})
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
}
