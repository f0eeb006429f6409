package tokenizer

import "encoding/json"

// wordsOfGPT4 is the pre_tokenizer of a tokenizer.json that cuts words by [PatternGPT4].
var wordsOfGPT4 = map[string]any{"type": "Sequence", "pretokenizers": []any{
	map[string]any{"type": "Split", "pattern": map[string]any{"Regex": PatternGPT4}, "behavior": "Isolated", "invert": false},
	byteLevelSection,
}}

var byteLevelSection = map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}

// sections are those of a tokenizer.json of byte-level BPE. The token begin, with the id
// first, is put before each text.
func sections(words any, begin string, first int, added []map[string]any, vocab map[string]int, merges [][2]string) map[string]any {
	return map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil, "normalizer": nil,
		"added_tokens": added, "pre_tokenizer": words, "decoder": byteLevelSection, "post_processor": beginsWith(begin, first),
		"model": map[string]any{"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
			"fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": merges},
	}
}

// beginsWith is a post_processor that puts a token before each text.
func beginsWith(token string, id int) map[string]any {
	special := map[string]any{"SpecialToken": map[string]any{"id": token, "type_id": 0}}
	a := map[string]any{"Sequence": map[string]any{"id": "A", "type_id": 0}}
	b := map[string]any{"Sequence": map[string]any{"id": "B", "type_id": 1}}
	return map[string]any{"type": "TemplateProcessing", "single": []any{special, a}, "pair": []any{special, a, special, b},
		"special_tokens": map[string]any{token: map[string]any{"id": token, "ids": []int{id}, "tokens": []string{token}}}}
}

// BytesDefinition returns a tokenizer.json with which other programs get the same ids as
// [Bytes]: the id of each byte is its value.
func BytesDefinition() ([]byte, error) {
	vocab := map[string]int{}
	for b, r := range byteToRune {
		vocab[string(r)] = b
	}
	return json.MarshalIndent(sections(byteLevelSection, string(byteToRune[0]), 0, []map[string]any{}, vocab, [][2]string{}), "", "  ")
}
