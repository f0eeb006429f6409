package main

import (
	"go/scanner"
	"go/token"
	"math/rand/v2"
	"slices"
	"strings"
)

// Sizes that fit into 128 bytes with the answer.
const (
	noiseBytes = 80  // around needles
	clozeBytes = 108 // before a cloze
	longest    = 16  // of its answers
	shortest   = 3
)

// slots are keys with the values that each may have. As no two share a value, one look back is
// enough to find it: a model with two layers learns that within some hundred steps, and the general
// lookup, where any value may belong to any key, not.
var slots = []struct{ key, values string }{
	{"A", "0123"}, {"B", "4567"}, {"C", "wxyz"}, {"D", "@#$%"}}

// needleSlots are those that are hidden among lines of source: their values are rare there.
const needleSlots = 2

// pair is a slot with its value.
type pair struct {
	slot  int
	value byte
}

func (p pair) String() string { return slots[p.slot].key + string(p.value) }

// pairs gives values to the first slots, in any order.
func pairs(r *rand.Rand, n int) (list []pair) {
	for _, i := range r.Perm(n) {
		list = append(list, pair{i, slots[i].values[r.IntN(choiceCount)]})
	}
	return list
}

// stated writes pairs: "A2D@B7".
func stated(list []pair) string {
	var b strings.Builder
	for _, p := range list {
		b.WriteString(p.String())
	}
	return b.String()
}

// recallText is a line with pairs, and behind it pairs again and again, in any order:
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

// lookup asks for the value of one of the pairs in a text, among all that it may have.
func lookup(r *rand.Rand, text string, list []pair) item {
	p := list[r.IntN(len(list))]
	values := slots[p.slot].values
	return item{text + slots[p.slot].key, strings.Split(values, ""),
		strings.IndexByte(values, p.value)}
}

// marked begins a line with a pair, where it is hidden and where it is asked for.
const marked = "//! "

// hidden are lines of source with marked lines among them, each with a pair.
func hidden(r *rand.Rand, sources []string) (text string, list []pair) {
	list = pairs(r, needleSlots)
	lines := strings.Split(snippet(r, sources, noiseBytes), "\n")
	for _, p := range list {
		lines = slices.Insert(lines, r.IntN(len(lines)+1), marked+p.String())
	}
	return strings.Join(lines, "\n") + "\n", list
}

// needleText asks for all that is hidden, twice.
func needleText(r *rand.Rand, sources []string) string {
	text, list := hidden(r, sources)
	for range 2 {
		for _, i := range r.Perm(len(list)) {
			text += marked + list[i].String() + "\n"
		}
	}
	return text
}

// snippet is so much of some source, from somewhere in it, in ASCII.
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

// clozes asks for identifiers that stood shortly before, among others of the same file, at most n.
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

// place is where an identifier begins.
type place struct {
	name string
	at   int
}

// identifiers are those of a file that can be answers: where they are, and each once.
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
