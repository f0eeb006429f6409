package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// bpe is the byte-pair model: it turns one word into ids by joining, again and
// again, the adjacent pair that was learned first (Sennrich et al. 2016).
type bpe struct {
	vocab        map[string]int32
	merges       map[uint64]merge
	bytes        [256]int32 // ids of <0x00> … <0xFF>, or noID
	unk          int32      // or noID
	fuseUnk      bool
	ignoreMerges bool
	byteLevel    bool   // words arrive as text and are looked up in the byte-level alphabet
	wordMark     string // where it follows another character, words can be cut; "": nowhere
}

type merge struct {
	rank int32 // the smaller, the earlier learned
	id   int32 // what the pair becomes
}

const noID int32 = -1

func newBPE(def *modelDefinition) (*bpe, error) {
	m := &bpe{
		vocab:        def.Vocab,
		merges:       make(map[uint64]merge, len(def.Merges)),
		unk:          noID,
		fuseUnk:      def.FuseUnk,
		ignoreMerges: def.IgnoreMerges,
	}
	if def.UnkToken != nil {
		id, ok := def.Vocab[*def.UnkToken]
		if !ok {
			return nil, fmt.Errorf("model.unk_token: %q is not in the vocabulary", *def.UnkToken)
		}
		m.unk = id
	}
	for b := range m.bytes {
		m.bytes[b] = noID
		if id, ok := def.Vocab[fmt.Sprintf("<0x%02X>", b)]; ok && def.ByteFallback {
			m.bytes[b] = id
		}
	}
	for rank, pair := range def.Merges {
		left, okLeft := def.Vocab[pair[0]]
		right, okRight := def.Vocab[pair[1]]
		joined, okJoined := def.Vocab[pair[0]+pair[1]]
		if !okLeft || !okRight || !okJoined {
			return nil, fmt.Errorf("model.merges[%d]: %q + %q: a part or the result is not in the vocabulary", rank, pair[0], pair[1])
		}
		// Of two entries for one pair the later wins, as in the original library.
		m.merges[pairKey(left, right)] = merge{rank: int32(rank), id: joined}
	}
	if m.marksWords() {
		m.wordMark = spaceMark
	}
	return m, nil
}

// appendWord appends the ids of one word.
func (m *bpe) appendWord(dst []int32, word string, g *wordMerger) ([]int32, error) {
	if m.byteLevel {
		word = toByteLevel(word)
	}
	if m.ignoreMerges {
		if id, ok := m.vocab[word]; ok {
			return append(dst, id), nil
		}
	}
	if err := m.symbols(word, g); err != nil {
		return dst, err
	}
	return m.merge(dst, g), nil
}

// symbols cuts a word into the ids of its characters; a character that is no
// token becomes its bytes if all of them are tokens, or else the unknown token.
func (m *bpe) symbols(word string, g *wordMerger) error {
	g.ids = g.ids[:0]
	lastUnknown := false
	for i := 0; i < len(word); {
		_, size := utf8.DecodeRuneInString(word[i:])
		char := word[i : i+size]
		i += size
		if id, ok := m.vocab[char]; ok {
			g.ids = append(g.ids, id)
			lastUnknown = false
			continue
		}
		if m.hasBytes(char) {
			for j := range len(char) {
				g.ids = append(g.ids, m.bytes[char[j]])
			}
			lastUnknown = false
			continue
		}
		if m.unk == noID {
			return fmt.Errorf("no token contains the character %q, and the tokenizer has no unknown token", char)
		}
		if !lastUnknown || !m.fuseUnk {
			g.ids = append(g.ids, m.unk)
		}
		lastUnknown = true
	}
	return nil
}

func (m *bpe) hasBytes(char string) bool {
	for i := range len(char) {
		if m.bytes[char[i]] == noID {
			return false
		}
	}
	return true
}

// spaceMark is how tokenizers in the manner of SentencePiece write a space.
const spaceMark = "\u2581"

// marksWords tells whether every token has its marks in front. Then nothing is ever
// joined across a place where a mark follows another character, and the text between two
// such places can be encoded by itself: without that, a whole document is one word.
func (m *bpe) marksWords() bool {
	if _, ok := m.vocab[spaceMark]; !ok || m.ignoreMerges {
		return false
	}
	names := make(map[int32]string, len(m.vocab))
	for token, id := range m.vocab {
		names[id] = token
	}
	for _, joined := range m.merges {
		if strings.Contains(strings.TrimLeft(names[joined.id], spaceMark), spaceMark) {
			return false
		}
	}
	return true
}

// eachMarked calls emit for the parts of text that begin where a mark follows another
// character.
func eachMarked(text, mark string, emit func(word string) error) error {
	for len(text) > 0 {
		at := len(text) - len(strings.TrimLeft(text, mark))
		if i := strings.Index(text[at:], mark); i >= 0 {
			at += i
		} else {
			at = len(text)
		}
		if err := emit(text[:at]); err != nil {
			return err
		}
		text = text[at:]
	}
	return nil
}

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
