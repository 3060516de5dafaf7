// Package get makes one GET, safely.
//
// The server counts as hostile until the digest proves otherwise: what it sends is
// bounded in time and size, only HTTP/1.1 is used, only an uncoded body of a
// 200 is taken, and failures are described in our words, never in the
// server's. Package egress decides which addresses may be reached, for every hop of
// every redirect.
package get
