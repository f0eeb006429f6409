// Package houserules holds the rules on who may import whom, and that every
// package has one comment. It has no code: its tests look at the whole module and
// fail with the reason of the rule.
package houserules
