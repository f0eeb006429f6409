// Package jsonlines keeps values in files that grow at their end, each value a line with a JSON object: the records of
// a run, the answers of a model. A process that is killed leaves at most its last line incomplete; [Read] says so, and
// a [Log] that goes on with the file cuts it off. A [Follower] reads a file while another process writes it.
//
// Files that are written at once, and not appended to, are internal/atomicfile's.
package jsonlines

// longest bounds a line in bytes, and so the memory that reading takes. The longest that are written are records with
// measures of very many weights.
const longest = 64 << 20
