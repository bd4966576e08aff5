//go:build !purego

#include "go_asm.h"
#include "textflag.h"

// The kernels for one segment work on groups of four strips. Their registers (those
// for all segments, screenAVX2 and touchBMI2, name their own):
//
//	DI  address of the segment's lines   R13  strip, R14  strips left
//	R8  the id's hash                    CX   index of the strip's first line
//	SI  probes, at the group             BX   probe keys, at the group
//	R9..R12  probe hashes, then the addresses of the lines
//	Y0  all ones   Y1, Y2  lanes 0..3 and 4..7 of what the lines have in common
//	Y12 ones       Y13  63          X11  shift of the fifth position
//	Y8  the group's four masks

DATA one<>+0(SB)/8, $1
GLOBL one<>(SB), RODATA|NOPTR, $8
DATA low6<>+0(SB)/8, $63
GLOBL low6<>(SB), RODATA|NOPTR, $8

#define LOAD \
	MOVQ         s+0(FP), AX; \
	MOVQ         h+8(FP), R8; \
	MOVQ         p+16(FP), SI; \
	LEAQ         ·probeKeys(SB), BX; \
	MOVQ         segment_lines(AX), DI; \
	MOVQ         segment_strip(AX), R13; \
	MOVQ         (segment_geometry+geometry_s)(AX), R14; \
	VMOVQ        segment_fifth(AX), X11; \
	XORL         CX, CX; \
	VPBROADCASTQ one<>(SB), Y12; \
	VPBROADCASTQ low6<>(SB), Y13; \
	VPCMPEQD     Y0, Y0, Y0

// HASH is probeHash for strip i of the group.
#define HASH(i, x) \
	MOVQ  (16*i)(BX), DX; \
	XORQ  R8, DX; \
	MULXQ (16*i+8)(BX), AX, x; \
	XORQ  AX, x

// PLACE turns a probe hash into the line it chooses: index to p.at, address to x.
#define PLACE(i, x) \
	SHRQ  $32, x; \
	IMULQ R13, x; \
	SHRQ  $32, x; \
	ADDQ  CX, x; \
	ADDQ  R13, CX; \
	MOVQ  x, (probes_at+8*i)(SI); \
	SHLQ  $6, x; \
	ADDQ  DI, x

// MASKS is without for the four probe hashes in Y3, left in Y8.
#define MASKS \
	VPAND   Y13, Y3, Y4; \
	VPSRLQ  $6, Y3, Y5; \
	VPSRLQ  $12, Y3, Y6; \
	VPSRLQ  $18, Y3, Y7; \
	VPSRLQ  X11, Y3, Y8; \
	VPAND   Y13, Y5, Y5; \
	VPAND   Y13, Y6, Y6; \
	VPAND   Y13, Y7, Y7; \
	VPAND   Y13, Y8, Y8; \
	VPSLLVQ Y4, Y12, Y4; \
	VPSLLVQ Y5, Y12, Y5; \
	VPSLLVQ Y6, Y12, Y6; \
	VPSLLVQ Y7, Y12, Y7; \
	VPSLLVQ Y8, Y12, Y8; \
	VPOR    Y4, Y5, Y5; \
	VPOR    Y6, Y7, Y7; \
	VPOR    Y5, Y8, Y8; \
	VPOR    Y7, Y8, Y8; \
	VPXOR   Y0, Y8, Y8

// GROUP locates h in four strips. Those beyond S, in the last group, are located
// in vain: they are stored in p, but their addresses are not used.
#define GROUP \
	HASH(0, R9) \
	VMOVQ       R9, X3; \
	PLACE(0, R9) \
	HASH(1, R10) \
	VPINSRQ     $1, R10, X3, X3; \
	PLACE(1, R10) \
	HASH(2, R11) \
	VMOVQ       R11, X4; \
	PLACE(2, R11) \
	HASH(3, R12) \
	VPINSRQ     $1, R12, X4, X4; \
	PLACE(3, R12) \
	VINSERTI128 $1, X4, Y3, Y3; \
	MASKS; \
	VMOVDQU     Y8, probes_mask(SI)

#define NEXTGROUP \
	ADDQ $64, BX; \
	ADDQ $32, SI; \
	SUBQ $4, R14

// TEST adds the line at x to what the lines have in common: a lane remains all
// ones as long as it has all bits asked for.
#define TEST(x, mask) \
	VPOR  (x), mask, Y4; \
	VPOR  32(x), mask, Y5; \
	VPAND Y4, Y1, Y1; \
	VPAND Y5, Y2, Y2

// ANSWER makes a bit of every lane.
#define ANSWER(ret) \
	VPCMPEQQ  Y0, Y1, Y1; \
	VPCMPEQQ  Y0, Y2, Y2; \
	VMOVMSKPD Y1, AX; \
	VMOVMSKPD Y2, DX; \
	SHLL      $4, DX; \
	ORL       DX, AX; \
	VZEROUPPER; \
	MOVB      AX, ret

// LOADALL begins a kernel for all segments: they are at SI, R14 of them, and the first
// two probe hashes of the id in R9 and R10.
#define LOADALL \
	MOVQ segs_base+0(FP), SI; \
	MOVQ segs_len+8(FP), R14; \
	MOVQ h+24(FP), R8; \
	LEAQ ·probeKeys(SB), BX; \
	HASH(0, R9); \
	HASH(1, R10)

// func probeAVX2(s *segment, h uint64, p *probes) uint8
TEXT ·probeAVX2(SB), NOSPLIT|NOFRAME, $0-25
	LOAD
	VMOVDQA Y0, Y1
	VMOVDQA Y0, Y2

group:
	GROUP
	VPBROADCASTQ X8, Y3
	TEST(R9, Y3)
	CMPQ   R14, $2
	JLT    done
	VPERMQ $0x55, Y8, Y3
	TEST(R10, Y3)
	JEQ    done
	VPERMQ $0xAA, Y8, Y3
	TEST(R11, Y3)
	CMPQ   R14, $4
	JLT    done
	VPERMQ $0xFF, Y8, Y3
	TEST(R12, Y3)
	NEXTGROUP
	JGT    group

done:
	ANSWER(ret+24(FP))
	RET

// func requestAVX2(s *segment, h uint64, p *probes)
TEXT ·requestAVX2(SB), NOSPLIT|NOFRAME, $0-24
	LOAD

group:
	GROUP
	PREFETCHT0 (R9)
	CMPQ       R14, $2
	JLT        done
	PREFETCHT0 (R10)
	JEQ        done
	PREFETCHT0 (R11)
	CMPQ       R14, $4
	JLT        done
	PREFETCHT0 (R12)
	NEXTGROUP
	JGT        group

done:
	VZEROUPPER
	RET

// func locatedAVX2(s *segment, p *probes) uint8
TEXT ·locatedAVX2(SB), NOSPLIT|NOFRAME, $0-17
	MOVQ     s+0(FP), AX
	MOVQ     p+8(FP), SI
	MOVQ     segment_lines(AX), DI
	MOVQ     (segment_geometry+geometry_s)(AX), CX
	VPCMPEQD Y0, Y0, Y0
	VMOVDQA  Y0, Y1
	VMOVDQA  Y0, Y2

line:
	MOVQ         probes_at(SI), R9
	VPBROADCASTQ probes_mask(SI), Y3
	SHLQ         $6, R9
	ADDQ         DI, R9
	TEST(R9, Y3)
	ADDQ         $8, SI
	DECQ         CX
	JNE          line
	ANSWER(ret+16(FP))
	RET

// AT is where upper half x of a probe hash points within a strip of R13 lines, in bytes.
#define AT(x, to) \
	MOVQ  x, to; \
	IMULQ R13, to; \
	SHRQ  $32, to; \
	SHLQ  $6, to

// func screenAVX2(segs []*segment, h uint64) uint64
//
//	SI segments, R14 how many are left   R9, R10 upper halves of the first two probe hashes
//	X3 both probe hashes                 Y6, Y7  their masks for the fifth position at R12
//	BX the answer                        AX      the segment, DI its lines, R13 its strip
TEXT ·screenAVX2(SB), NOSPLIT|NOFRAME, $0-40
	LOADALL
	VMOVQ        R9, X3
	VPINSRQ      $1, R10, X3, X3
	SHRQ         $32, R9
	SHRQ         $32, R10
	VPBROADCASTQ one<>(SB), Y12
	VPBROADCASTQ low6<>(SB), Y13
	VPCMPEQD     Y0, Y0, Y0
	MOVQ         $-1, R12
	XORL         BX, BX
	TESTQ        R14, R14
	JEQ          done

segment:
	MOVQ -8(SI)(R14*8), AX
	CMPB segment_screened(AX), $0
	JEQ  suspect
	CMPQ R12, segment_fifth(AX)
	JNE  masks

test:
	MOVQ      segment_lines(AX), DI
	MOVQ      segment_strip(AX), R13
	AT(R9, R11)
	AT(R10, DX)
	SHLQ      $6, R13
	ADDQ      R13, DX
	VPOR      (DI)(R11*1), Y6, Y1
	VPOR      32(DI)(R11*1), Y6, Y2
	VPOR      (DI)(DX*1), Y7, Y4
	VPOR      32(DI)(DX*1), Y7, Y5
	VPAND     Y4, Y1, Y1
	VPAND     Y5, Y2, Y2
	VPCMPEQQ  Y0, Y1, Y1
	VPCMPEQQ  Y0, Y2, Y2
	VMOVMSKPD Y1, CX
	VMOVMSKPD Y2, DX
	SHLL      $4, DX
	ORL       DX, CX
	ANDB      segment_query(AX), CX
	NEGL      CX
	ADCQ      BX, BX
	DECQ      R14
	JNE       segment

done:
	VZEROUPPER
	MOVQ BX, ret+32(FP)
	RET

suspect:
	STC
	ADCQ BX, BX
	DECQ R14
	JNE  segment
	JMP  done

masks:
	MOVQ         segment_fifth(AX), R12
	VMOVQ        R12, X11
	MASKS // of the first two strips: what X3's upper half makes of Y8 is not used
	VPBROADCASTQ X8, Y6
	VPERMQ       $0x55, Y8, Y7
	JMP          test

// func touchBMI2(segs []*segment, h uint64)
//
//	SI segments, R14 how many are left, R12 how many there are
//	R9, R10 upper halves of the first two probe hashes
//	DI  lines of the segment, R13 its strip, CX strips left, R11 bytes before the strip
TEXT ·touchBMI2(SB), NOSPLIT|NOFRAME, $0-32
	LOADALL
	SHRQ  $32, R9
	SHRQ  $32, R10
	MOVQ  R14, R12
	TESTQ R14, R14
	JEQ   done

segment:
	MOVQ       -8(SI)(R14*8), AX
	MOVQ       segment_lines(AX), DI
	MOVQ       segment_strip(AX), R13
	AT(R9, R11)
	AT(R10, DX)
	PREFETCHT0 (DI)(R11*1)
	MOVQ       R13, R11
	SHLQ       $6, R11
	ADDQ       R11, DX
	PREFETCHT0 (DI)(DX*1)
	CMPQ       R14, R12
	JEQ        rest
	CMPB       segment_screened(AX), $0
	JEQ        rest

next:
	DECQ R14
	JNE  segment

done:
	RET

rest:
	MOVQ (segment_geometry+geometry_s)(AX), CX
	LEAQ ·probeKeys+32(SB), BX
	LEAQ (DI)(R11*2), DI
	SUBQ $2, CX
	JLE  next

strip:
	HASH(0, DX)
	SHRQ       $32, DX
	IMULQ      R13, DX
	SHRQ       $32, DX
	SHLQ       $6, DX
	PREFETCHT0 (DI)(DX*1)
	ADDQ       R11, DI
	ADDQ       $16, BX
	DECQ       CX
	JNE        strip
	JMP        next
