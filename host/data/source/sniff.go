package source

import (
	"bytes"
	"strings"
)

// Kind is what a file is by its first bytes: one of [kinds], or "" for anything else.
type Kind string

// Kinds of files that are called otherwise, or are not read.
const (
	KindParquet Kind = "Parquet"
	KindUTF16   Kind = "UTF-16"
	KindMarkup  Kind = "HTML or XML"
	KindPDF     Kind = "PDF"
)

// kinds are what files begin with, and what can be done with one that is called otherwise.
var kinds = []struct {
	begins string
	kind   Kind
	hint   string
}{
	{"PAR1", KindParquet, "call it .parquet"},
	{"\x1f\x8b", "gzip", "call it .gz"},
	{"\x28\xb5\x2f\xfd", "Zstandard", "call it .zst"},
	{"\xfd7zXZ\x00", "xz", unpackHint},
	{"BZh", "bzip2", unpackHint},
	{"PK\x03\x04", "zip", unpackHint},
	{"7z\xbc\xaf\x27\x1c", "7-Zip", unpackHint},
	{"\x04\x22\x4d\x18", "lz4", unpackHint},
	{"\xff\xfe", KindUTF16, utf16Hint},
	{"\xfe\xff", KindUTF16, utf16Hint},
	{"<", KindMarkup, "a server may have sent it in place of the file: download it again"},
	{"%PDF-", KindPDF, "extract its text"},
}

const (
	unpackHint = "unpack it"
	utf16Hint  = "convert it to UTF-8, as with iconv -f UTF-16 -t UTF-8"
	sniffed    = 512 // bytes of a file that are looked at
)

// Sniff returns what a file is, given its first bytes.
func Sniff(begin []byte) Kind {
	kind, _ := sniff(begin)
	return kind
}

func sniff(begin []byte) (Kind, string) {
	text := bytes.TrimSpace(bytes.TrimPrefix(begin, []byte(UTF8Mark)))
	for _, k := range kinds {
		from := begin
		if k.kind == KindMarkup {
			from = text
		}
		if strings.HasPrefix(string(from), k.begins) {
			return k.kind, k.hint
		}
	}
	if len(begin) >= 4 { // ASCII in UTF-16 without a mark
		even, odd := begin[0]|begin[2], begin[1]|begin[3]
		full := begin[0]|begin[1] != 0 && begin[2]|begin[3] != 0
		if (even == 0) != (odd == 0) && full && even|odd < 0x80 {
			return KindUTF16, utf16Hint
		}
	}
	return "", ""
}

// UTF8Mark is what some programs write before a text in UTF-8.
const UTF8Mark = "\xef\xbb\xbf"

// otherwise returns the error for a file of another kind than its name says, given its first bytes;
// nil if nothing is known of these.
func otherwise(format string, begin []byte) error {
	kind, hint := sniff(begin)
	if kind == "" || string(kind) == format {
		return nil
	}
	return &DamagedError{format, "this is " + string(kind) + ", whatever it is called: " + hint}
}
