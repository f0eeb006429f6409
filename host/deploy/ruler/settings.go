package ruler

import (
	"slices"

	"github.com/cage-qat/cage/internal/schema"
)

// Settings say what prompts to make: the flags of `cage ruler`, which are keys of a study file, too.
type Settings struct {
	Lengths  []int    // in tokens
	Samples  int      // number for each task and length
	Names    []string // of tasks; none means all
	Files    Files
	Template string // template of conversations; "" means none
}

// Keys describes the settings.
func (s *Settings) Keys() []schema.Key {
	return []schema.Key{
		{Name: "lengths", Flag: "length", To: &s.Lengths, Is: schema.From(1, schema.Most), Default: []int{4096}, Doc: "lengths in tokens, of prompt and answer together"},
		{Name: "samples", To: &s.Samples, Is: schema.From(1, schema.Most), Default: 500, Doc: "samples of each task and length"},
		{Name: "tasks", To: &s.Names, Optional: "all", Doc: "names of tasks; all if not given"},
		{Name: "words", To: &s.Files.Words, Is: schema.NonEmpty("that names a directory"), Default: "",
			Doc: "directory `DIR` with nounlist.txt, adjectivelist.txt and verblist.txt of wonderwords, and RULER's english_words.json"},
		{Name: "essay", To: &s.Files.Essay, Is: schema.NonEmpty("that names a file"), Default: "", Doc: "`FILE` with RULER's essays, or any text"},
		{Name: "squad", To: &s.Files.Squad, Is: schema.NonEmpty("that names a file"), Default: "", Doc: "`FILE` of SQuAD 2.0 (dev-v2.0.json)"},
		{Name: "hotpot", To: &s.Files.Hotpot, Is: schema.NonEmpty("that names a file"), Default: "", Doc: "`FILE` of HotpotQA (hotpot_dev_distractor_v1.json)"},
		{Name: "template", To: &s.Template, Is: schema.NonEmpty("that names a template"), Default: "",
			Doc: "put prompts into the template of conversations"},
	}
}

// SortedLengths returns the lengths in ascending order, each once.
func (s *Settings) SortedLengths() []int {
	return slices.Compact(slices.Sorted(slices.Values(s.Lengths)))
}
