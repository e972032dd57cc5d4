package uefivars

// Signatures is for the comparison with what other programs write.
var Signatures = signatures
