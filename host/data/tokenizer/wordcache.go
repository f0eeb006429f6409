package tokenizer

import "strings"

// wordCache appends the ids of words, and keeps those of short ones: texts are made of
// few words, which they repeat. It is used by one goroutine at a time.
type wordCache struct {
	model *bpe
	ids   []int32 // of the text so far
	left  int     // bytes that its words may still have

	known map[string][]int32
	fresh []int32 // memory for the ids of known words
	wordMerger
}

const (
	maxCachedWord  = 64      // bytes
	maxCachedWords = 1 << 16 // then it starts afresh
)

func newWordCache(model *bpe) *wordCache {
	return &wordCache{model: model, known: make(map[string][]int32)}
}

// appendID appends an id.
func (c *wordCache) appendID(id int32) { c.ids = append(c.ids, id) }

// appendWord appends the ids of a word.
func (c *wordCache) appendWord(word string) error {
	if ids, ok := c.known[word]; ok {
		c.ids = append(c.ids, ids...)
		return nil
	}
	before := len(c.ids)
	var err error
	if c.ids, err = c.model.appendWord(c.ids, word, &c.wordMerger); err != nil || len(word) > maxCachedWord {
		return err
	}
	if len(c.known) >= maxCachedWords {
		clear(c.known)
	}
	c.known[strings.Clone(word)] = c.keep(c.ids[before:])
	return nil
}

// keep copies ids to memory that many words share.
func (c *wordCache) keep(ids []int32) []int32 {
	if len(c.fresh)+len(ids) > cap(c.fresh) {
		c.fresh = make([]int32, 0, max(4096, len(ids)))
	}
	at := len(c.fresh)
	c.fresh = append(c.fresh, ids...)
	return c.fresh[at:len(c.fresh):len(c.fresh)]
}
