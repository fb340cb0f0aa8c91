"""The numbers that decide verdicts: thresholds, factors, distances and counts of points.

Sizes that change what a check costs and no verdict stand in `adjudge.limits`, and facts of
floating-point formats in `adjudge.floats`. What was measured on the zoo was measured by
`git show 5f130b4:benchmarks/constants.py`, on the cases that read a constant.
"""

# ---- Steps of differences

LADDER_RATIO = 4.0
"""Steps of a ladder that are close together sample the same noise, and steps far apart leave few
windows. Neighbouring steps have this ratio. The value is ours."""
COARSE_LADDER_RATIO = 2.0
"""In sixteen bits a ladder of the ratio 4 would have two steps. This ratio stands in for
`LADDER_RATIO` there. The value is ours."""
SHORTER_STEPS = 8
"""`sin(1e6 x)`, or sorting 2000 numbers, is smooth over short steps only, and every step of a
ladder crosses several periods or reorderings. Such a ladder goes on to as many steps below the
first in place of three, in float64 to 1e-10 of x: what is smooth over no longer step is lost in
rounding. The value is ours."""
DIVERGING_PART = 1 / 64
"""The windows of `sqrt` at 0 are farther and farther apart, and so are those that noise dominates.
From one step to the next the slope of a root changes by half of itself or more, and that of
`x log x` at 0 by a twentieth. The value lies below these, and above noise that still leaves two
digits; it is ours."""
TRUNCATED_UNITS = 64
"""Shorter steps help where a ladder has not converged, and take ten evaluations. It has not where
an error bar exceeds this many units of rounding over the shortest step. The value is ours and has
no derivation."""
AGREEING_STEPS = 8
"""A function that rounds to float32 inside has another slope between two roundings than over longer
steps. Three of these agree where they differ by less than this part of the slope: steps that cross
several periods do so by chance, and then stay open. The value is ours."""
KINKED_PART = 1 / 4
"""Steps beyond a single kink are off by half of the gap between their slopes to both sides, to the
last digit, and by less than that where other kinks are about. A right network of 20,000 rectified
numbers stayed open at 1 of 75 points without this rule. The value is ours."""
NARROWER_BAR = 4
"""Shorter steps drown in the noise of f, where two of them agree by chance. They are kept if the
error bar of what still fails is this many times narrower with them. The value is ours."""
FAST_PART = 1 / 8
"""Where f moves as fast as the rule says, three steps that are too long agree on another slope, and
a right rule of a system of condition 1e8 failed. They prove no error of a derivative that would
move f by more than this part of itself over the shortest of them. The value is ours: it is an
eighth of a period at most."""
CLAIMED_STEPS = (1 / 4, 1 / 16, 1 / 64, 1 / 256)
"""As parts of the longest step over which a claimed derivative would move f by no more than
`FAST_PART` of itself, the steps that are taken where no ladder has one as short. The values are
ours."""
SECOND_LADDER_FACTOR = 1.4
"""Values may be rounded to multiples of a power of two, as the steps are, and a second ladder at
powers of two would show no rounding. Its steps are those of the first times this factor, which is
no ratio of small numbers. The value is ours."""
EXACT_SECOND_LADDER_FACTOR = 1.5
"""In narrow dtypes, and along random tangents, a step times 1.4 is not exact and would change the
direction. This factor stands in for `SECOND_LADDER_FACTOR` there. The value is ours."""
DROWNED_PART = 1e-3
"""Where rounding drowns the motion of f at the first step (`1e14 + sin(x)`), all of an ordinary
ladder is noise. A ladder reaches longer steps where the error bar exceeds this part of the value.
The value is ours."""
LONGEST_STEP = 0.25
"""Over a long step most functions are no polynomial any more, and the coarse windows of a ladder
are wasted or agree by chance. The ladder has no step longer than this part of the scale of x. The
value is ours and has no derivation."""
MEAN_POINTS = 16
"""A right derivative fails beside a large entry where the only steps that show it cross a kink. How
far f moves over such a step is compared with the mean of its derivative at this many points of it:
a kink between two of them makes an error of a thirty-second of its size. The value is ours."""
MEAN_PART = 1 / 4
"""By this part the mean derivative over a long step and the motion of f may be apart for kinks that
lie between the points of the mean. What is missing a term, or has another sign, is farther off. The
value is ours."""
BENT_PART = 1 / 10
"""Where the mean derivative over a long step is that at x, to this part of what x is off by, f is
as straight as that, and the steps say what they say at x. Without it a rule 5 % off passes beside a
large entry. The value is ours."""
MEAN_STEPS = 5
"""Short steps agree on a slope that is not that of the formula where a factor of f has few bits
left. So many longer steps, each a quarter of the one before, are asked whether they side with the
derivative: from a quarter of x to a thousandth. The value is ours."""
MEAN_NODES = 12
"""The mean of a derivative over a longer step comes from so many nodes of Gauss-Legendre, and so
does what f scatters by about its integral. They are exact for polynomials of degree 23, as which
most derivatives may count over a quarter of x. The value is ours."""
MEAN_BARS = 4
"""The slope of a line through scattered values is off by its standard deviation or more once in
three times. The error bar is so many of them. The value is ours."""
MEAN_BAR = 0.1
"""Without a bound any value would agree with a line through noise. The derivative has to be known
to this part of itself, which is the widest bar of any check that passes. The value is ours."""
MEAN_UNITS = 8
"""Stairs that are meant and rounding on the way look alike but for their size. What f may be off
the integral of its derivative is so many units of rounding of the largest number of its leaf: a sum
and three functions on the way make as much. The value is ours."""
FEW_UNITS = 2.0**12
"""Stairs of rounding are longer than the steps of a ladder where a value is no more than so many
units of rounding of the largest number of its leaf. What is larger shows its own slope, and stairs
or waves that it has beside 1e10 were taken for rounding without this bound. The value is ours."""
LOST_UNITS_OF_RULE = 2.0**16
"""Rules are replayed where they are off by no more than so many units of rounding of the largest
derivative of their leaf. Larger errors are no rounding of a small derivative, and to replay rules
wherever something is wrong took a third of the time of a FAIL. With a sixteenth of it one of six
second derivatives of 2,000 tails of a GELU failed, whose differences are off by more. The value is
ours."""
HARMLESS_UNITS = 16
"""What a rule that is right loses is left out of account if it is no more than so many units of
rounding of the largest derivative of its leaf; what is more widens the error bar. Where all
derivatives of the leaf are small, rules are replayed as well that are off by no more than so many
units of rounding of the probes, as by a factor that is taken from 1. The value is ours."""
MEAN_REACH = 1 / 16
"""Over a short step every error of a rule is within rounding of f. Over a step of this part of x a
value that is off by all of itself is not, where f has a bit or two left; what is off by no more
there is left open, once short differences are refuted. The value is ours."""
REFUTED = 8
"""Short differences are refuted over a longer step where their mean is off the motion of f by so
many times what the mean of the automatic derivative is off. Without it a rule that is wrong between
two kinks close by would pass, since it is right farther off. The value is ours."""
SPACINGS_OF_A_VALUE = 2
"""Two evaluations do not show how well f is rounded, and without a guess a right derivative of a
short sum would lie outside of its error bar. Each value counts as off by this many spacings, which
are four units of rounding. That covers a short sum of terms of its own size; longer sums are found
out by the ladder. The value is ours."""
EXTRAPOLATED_ROUNDING = 17 / 15
"""The rounding of a difference that is extrapolated from two steps of the ratio 4, over that of the
difference at the shorter step. It follows from the weights 16/15 and 1/15, of which the second
applies at a step four times as long."""
ELIMINATION_ROUNDING = 4
"""To remove powers of the step amplifies rounding, and a window of a ladder that counted as no
noisier than its samples would have too narrow a bar. The first power hardly does (see
`EXTRAPOLATED_ROUNDING`), and each further one counts as amplifying it by this factor. The value is
ours and has no derivation."""
LADDER_BAR_FACTOR = 2
"""The disagreement of neighbouring windows and their rounding are estimates themselves, and a right
derivative would now and then lie outside of their sum. The error bar of a ladder is this many times
the sum. The value is ours and has no derivation."""
CONTRADICTING_BARS = 2
"""Two coarse windows may agree by chance across a jump, and their narrow bar would be believed. A
finer window contradicts them if the bars do not meet where each is this many times as wide. The
value is ours; the rule is Lepski's (Theory Probab. Appl. 35, 1990)."""
UNEVEN_STEP = 40503 / 2**15
"""Steps along one input in double precision are powers of two times this, near twice the inverse of
the golden ratio. A step that is a multiple of the stairs of a quantiser (`round(1024 x) / 1024`)
shows the slope of the whole staircase exactly, and a straight-through gradient passed. It has
sixteen bits, so that products stay exact. The value is ours."""
STEP_REDUCTIONS = (1.0, 2.0**-8, 2.0**-16)
"""Close to the edge of a domain (log near 0, say) a neighbour of x is not finite at the first step.
The step is multiplied by these factors in turn until both neighbours are finite. The values are
ours and have no derivation. Without the first factor 1 of 34 cases of the zoo was judged worse, and
without the last none."""
SHORT_STEP_REDUCTIONS = (1.0, 2.0**-2)
"""In sixteen bits a step that is 2^-8 of the first one falls below the spacing of x. These factors
stand in for `STEP_REDUCTIONS` there. The values are ours and have no derivation."""
COARSE_EPS = 2.0**-12
"""A dtype of sixteen bits has room for a few steps only, between steps at which f curves and steps
that round away. Where `eps` is coarser than this, a ladder has the ratio 2 in place of 4, and other
rules for few digits apply. The value lies between float32 and float16; any other in between would
do the same."""
MOST_DIGITS = 600
"""The derivative of a tail may be so small that the output of a reference does not move in the
digits asked for. Digits are added up to this number. A difference at a step of `10^(-digits/3)`
keeps two thirds of them, so 600 digits show every derivative that float64 holds, down to 5e-324, of
a value near 1."""

SCALE_RANGE = 1e4
"""A step that suits the largest entry of a leaf would throw a far smaller one across its domain,
and a step as short as the smallest would drown in the rounding of the others. Where magnitudes span
more than this, each entry has a step of its own; else all take the root mean square. The value is
ours and has no derivation."""
PASSED_OVER = 1000
"""Random numbers have an entry that is small by chance, and all steps of a leaf would be short
because of it. One entry in this many, the smallest, is passed over when the span is taken. The
value is ours and has no derivation."""
TRUNCATION_FACTOR = 4
"""A suspicion that is within the truncation error of two evaluations is followed for nothing. That
error is taken for this many times the square of the relative step: it is `h^2 f'''/6`, with an
`f'''` over the scale of x that is 24 times f'. The value is ours and has no derivation beyond
that."""

# ---- What counts as zero

UNDERFLOW = 2.0**-1022
"""Products of subnormal numbers have lost digits, and some engines flush them to zero, so that two
right numbers disagree. Numbers below the smallest normal float64 count as zero. The value is that
of IEEE 754."""
COUNTS_AS_ZERO = 2.0**-960
"""Where an engine flushes subnormal numbers, differences of x of that size, and products with them,
are lost. A magnitude below this counts as zero, and such a leaf has the scale 1. The value is 62
binary orders above the smallest normal number, which leaves room for the smallest steps; it is
ours."""
UNDERFLOW_MARGIN = 16
"""Engines round or flush what is below the smallest number of a dtype, and two sides that do so
differently would disagree. Numbers may be off by this many times the smallest one. The value is
ours and has no derivation."""

# ---- Tolerances

RTOL_EXPONENT = 0.5
"""A tolerance below what differences can show makes right derivatives fail. In double precision
`rtol` is the unit round-off to this power, 1e-8; see `Tolerance.relative`. The value is ours."""
NARROW_RTOL_EXPONENT = 0.4
"""An extrapolated central difference attains the accuracy `u^(4/5)`. In narrower dtypes `rtol` is
its square root, the unit round-off to this power. The value follows from that."""
RESOLUTION_EXPONENT = 0.25
"""A derivative of the wrong sign would agree with any difference that is noisy enough. An error bar
that is wider than the unit round-off to this power, relative to the derivative, decides nothing.
The value is ours and has no derivation."""
SHARP_TOLERANCES = 16
"""A difference whose rounding is as large as the derivative agrees with anything. Two evaluations
settle a projection only if the error bar is finer than this many times `rtol`; its bar adds up
those of many entries. The value is ours."""
SIGNIFICANT_PART = 1 / 4
"""One wrong entry among n shrinks by a factor near sqrt(n) in a projection, where `rtol` then
allows it. A deviation that leaves the error bar by more than this part of `rtol` is traced to its
entry, which is compared by itself. With a smaller part the truncation error of right derivatives is
traced for nothing. The value is ours and has no derivation. With 2 in its place 1 of 58 cases of
the zoo was judged worse, and with 1/32 none."""
ENTRY_FLOOR = 1e-4
"""The truncation error of a central difference follows the large neighbours of a small entry, which
would fail. As long as only two evaluations were made, an entry is compared on the scale of this
part of the largest in its column or block; after a ladder, which measures truncation, it is
compared on its own. The value is ours and has no derivation."""
ACCURATE_PART = 1e-5
"""A constant in a narrower dtype makes a derivative that is wrong in the last digits only, and a
reader would look for a wrong formula. Where all wrong entries are off by less than this part, the
report says to how many digits the derivative is accurate. No verdict depends on it. The value is
ours and lies above the rounding of float32."""
ITERATION_PART = 2.0**-9
"""A derivative that is off by the tolerance of an iteration looks like a wrong formula. Where wrong
entries are off by no more than this part of the largest one, and in no pattern, the report says
what an iteration would explain. No verdict depends on it. The value is ours: solvers are rarely
asked for less."""
ITERATION_ROOM = 8
"""The entry that is off by most is rarely the one that was looked at, and an `atol` that allows
just that one would fail at the next. This many times the error that was seen is suggested as
`atol`. The value is ours and has no derivation."""
UNDETECTABLE_UNITS = 64
"""The rounding of a derivative that is differentiated once more would pass for a slope of it. A
change of less than this many units of rounding of f is taken not to show. The value is ours and has
no derivation."""
VJP_UNITS = 16
"""A vjp is rounded, and the search for wrong entries would follow that rounding into right ones. A
projection by one vjp may be off by this many units of rounding of its terms. The value is ours and
has no derivation."""
ANALYTIC_UNITS = 8
"""A right rule would fail on the rounding of a derivative that the user gives by hand, if that
counted as exact. It may be off by this many units of rounding of its terms. The value is ours and
has no derivation."""

# ---- Rounding, or an error

STEADY_PART = 1 / 16
"""A value below the rounding of f may be a derivative, or rounding of its own. It counts as a
derivative if it changes by less than this part where x moves by a unit of rounding. The value is
ours."""
RESIDUE_DISTANCES = (2.0**-30, 2.0**-26, 2.0**-22, 2.0**-20, 2.0**-18, 2.0**-16)
"""The gradient of a bias before a softmax is zero and some units of rounding, and would count as a
derivative that f does not show. Such a number is taken again at these distances, relative to every
entry of x and of the probe, and rounding has changed at one of them. The derivative of `exp(-x)`
changes by one part in eighty over the last of them where its value is the smallest number of
float64. The values are ours."""
NEAR_DISTANCES = (2.0**-30, 2.0**-20, 2.0**-16, 2.0**-13, 2.0**-11, 2.0**-9)
"""At one point no bound tells the rounding of an ill-conditioned rule from a small error of it. Two
numbers that should be one are taken again at these distances, relative to every entry of x, and
what stays the same is an error. At the last also the rounding of code that is in single precision
inside has changed. The values are ours."""
FAR_DISTANCES = (2.0**-6, 2.0**-4, 2.0**-2, 2.0**-1, 1.0)
"""Close to x the rounding errors of a narrow derivative may be the same, and would count as an
error of the formula. Two sides are compared again at these distances as well, so far apart that the
rounding errors at two of them have nothing in common. At the last a function that computes through
larger numbers moves by more than their spacing. The values are ours."""
ENOUGH_POINTS = 4
"""With one or two points rounding is the same by chance too often. A deviation is an error only if
it was the same at this many points beside x; some may lie outside the domain of f. The value is
ours and has no derivation."""
CONSTANT_RATIO = 16.0
"""Rounding has a mean near zero, and an additive error has one that stands out. A deviation is the
same at all points if its squared mean exceeds this many times its variance between them. Normal
numbers of mean zero do so with probability 4e-3 at four points and 2e-4 at six. The value is
ours."""
STANDARD_ERRORS = 8
"""Rounding has a mean that is not quite zero, and every leaf would be off by a factor. A common
factor differs from one only if it does so by this many standard errors of its mean. The value is
ours and has no derivation. With 1 in its place 2 of 20 cases of the zoo that read it were judged
worse, and with 64 none."""
DERIVATIVE_UNITS = 16
"""A right derivative in a narrow dtype is rounded at every step, and would be called inaccurate. It
may be off by this many units of rounding of its terms. In the design study (docs/numerics.md) 90 %
of the well-conditioned derivatives were within 4 units; four times that is ours. With 128 in its
place 2 of 34 cases of the zoo had other findings, and none another verdict."""
WRONG_FACTOR = 4
"""A deviation of two sides, such as a narrow dtype and double precision, is inaccuracy or an error,
and only points farther off tell which. Up to this many times the allowed rounding it is inaccuracy;
beyond it, what stays the same at all points is an error. The factor is that of the design study
(docs/numerics.md). Together with `DERIVATIVE_UNITS` it allows 64 units where two sides add the same
terms in another order: a sum of n terms is off by about sqrt(n) units (Higham and Mary 2019). With
32 in its place 2 of 34 cases of the zoo had other findings, and none another verdict."""
ZERO_MOVES = 4
"""A derivative that double precision shows to be no more than this many times what it moves by,
where x moves by a spacing, is a rounding of zero: the terms of a sum that cancels. Without it every
bias before a norm is called inaccurate in a narrow dtype. What is no rounding moves by some 1e-16
of itself, unless it is ill-conditioned beyond all digits of double. The value is ours."""
ZERO_UNITS = 2
"""A rounding of zero in double is as many times larger in a narrow dtype as its spacing is wider,
and up to this many times that. Of 1,386 gradients of shifts before norms 95 % were within 1.6 times
what double showed at five points; with 16 a term that bfloat16 leaves out passed at half of the
seeds."""
NEAR_ULPS = 2
"""An ill-conditioned derivative that is right in formula moves by far more than its rounding. How
far the one in double moves between points within this many units of rounding of x is what
conditioning explains. The value is ours."""
LOST_UNITS = 2.0**8
"""The values of `1 - cos(x)` for a small x are differences of larger numbers, and their rounding is
that of these numbers. Values have lost digits if all of them are multiples of a number that is this
many units of their own rounding, as random values are once in 256 times each. The value is ours."""
SPACING_UNITS = 2.0**10
"""A function that rounds its result has a coarse spacing by definition, and any difference would
pass as the rounding of larger numbers. The spacing of values is put down to such numbers up to this
many units of rounding. The value is ours and has no derivation."""
ALIKE_UNITS = 4
"""In sixteen bits a single entry may be off by half of itself, for its rounding and conditioning,
and a rule without the terms of a mean, 17 % off in all entries, passed. What all entries of a leaf
are off by together, as a root of the mean square, is looked at from this many units of rounding on:
kernels that compute in single precision inside are off by one half. The value is ours."""
ALIKE_ENTRIES = 32
"""The deviations of few entries are alike by chance. Those of a leaf are compared from so many on:
two draws of 32 numbers are correlated by more than a half in one case of 200, and six of them by
that much in none. The value is ours."""
ALIKE_POINTS = 6
"""The deviations of a leaf are rounding where they have nothing to do with each other at points
beside x. They are taken at so many, `ENOUGH_POINTS` and two more. The value is ours."""
NARROW_VALUE_UNITS = 4
"""What was lost in an intermediate value, such as `1 - y` with y next to 1, is no error of the
rule. In sixteen bits a deviation of the derivative counts if it would move f by more than this many
units of rounding; `DERIVATIVE_UNITS` of these coarse units would hide real errors. The value is
ours and has no derivation."""
LEAF_PROBES = 4
"""One probe of a leaf may be orthogonal to its error. This many random probes are shared out among
the leaves, and each leaf gets two of them at least. In float32 it gets no more than two: with four
a check takes a third longer, and of 6,923 verdicts of the zoo none is another one. In sixteen bits
two called a right derivative wrong (a grid sample), since fewer probes average less of the
rounding. The value is ours and has no derivation."""
WORST_ENTRIES = 32
"""A wrong rule of a large leaf has as many deviations as entries, and all would be followed at all
points. This many entries are looked at closely, those farthest off. The value is ours."""
ISOLATED_TOLERANCES = 64
"""A rule that is wrong at x alone (a special case of it, say) has neighbours that are right, so
that its change would pass for rounding. An automatic value that is off by more than this many
tolerances at x stays wrong. The value is ours and has no derivation."""
UNLIKE_ROUNDING = 2.0**10
"""A value that is off by this many times less than it changes by next to x is none of the noise
there, which is so small by chance once in as many times: it is that of another branch. The value
is ours."""
ISOLATED_POWERS = (1 / 2, 1 / 3, 1 / 4)
"""A value of another branch is wrong if the rule is right on both sides of x, at one of these
distances, powers of `eps` relative to each entry of x: what is smooth is off by the square of the
distance, and the rounding of a divided difference falls with that square. Right means that the mean
of both sides is `ISOLATED_TOLERANCES` times closer than the value at x, and alike that they differ
by no more than `BRANCH_PART` of what that is off by. The values are ours."""
CANCELLATION_UNITS = 2.0**16
"""Where terms as large as f cancel in a derivative, forward and reverse mode are left with
different roundings of zero. A gap of up to this many units of rounding of f over the scale of x is
put down to that, and a disagreement below it is not seen. The value is ours and has no
derivation."""
ADJOINT_SAMPLES = 6
"""Pairs of points within rounding of x at which the gap of two modes is taken again. With two pairs
an error of 1e-7 in a rule of condition 1e7 passes for rounding. The value is ours."""
SURE_OF_MEAN = 5.0
"""A gap is one of the rules where its mean is so many times its standard error. Without a bound as
wide right rules would fail: of twelve samples that scatter about zero one set of 2500 has such a
mean (Student's distribution), and with 3 one of 80. The value is ours."""
ADJOINT_RETRIES = 4
"""To take a gap again costs a vjp and a jvp at up to six points, and a wrong rule of many inputs
has many gaps. No more than this many of one table are taken again, the largest first; only gaps
that ill-conditioning could explain are, and others fail at once. The value is ours."""
SHORTEST_DISTANCE_UNITS = 4
"""A move of x by less than its rounding gives x itself, where a gap is the same whatever makes it.
Points at which a gap is looked at again lie at least this many units of rounding off x. The value
is ours and has no derivation."""
SCATTER_POWERS = (34 / 52, 30 / 52, 26 / 52, 22 / 52, 18 / 52, 14 / 52, 10 / 52)
"""The rounding inside of a rule may stay the same over many units of rounding of x, and a right and
ill-conditioned entry would be called wrong. Automatic numbers are taken at these powers of `eps`
from x, in float64 2^-34 to 2^-10 of it. The values are ours."""
LEVEL_SCATTER = 8
"""What is smooth would pass for scatter, and excuse an error. From one distance to the next it
grows 256 times in float64 and eleven times in float32, and scatter does not. What grows more than
this does not count. The value is ours."""
SMOOTH_STEPS = 2
"""Far off a smooth derivative varies as much from one distance to the next as scatter does, beyond
a singularity or over several periods. Nothing counts from where on it grew as the square of the
distance so many times. The value is ours: once happens by chance."""
LOUD_UNITS = 16
"""Every wrong entry would pay for the search for rounding inside of its rule. It is made where f
itself is louder than this many units of the rounding of its values. The value is ours."""
NEIGHBOUR_FACTOR = 4
"""Two moves of x by a unit of rounding show only a part of what rounding can do to an automatic
number, and a right entry of an ill-conditioned rule would be named as wrong. This many times the
larger change is allowed. The value is ours and has no derivation."""
PROGRAM_DISTANCE = 2.0**-16
"""A program is recorded once more at a point so far from x, in parts of every entry, to see whether
numbers that it takes for constants are. In float32 that is 128 spacings. The value is ours."""
MOST_TRIED = 256
"""So many outputs of a jvp are asked for their rounding beside x. Where only the worst were, and
the one that changes least stood for the rest, the right jvp of a matrix function with eigenvalues
1e-10 apart failed. It bounds the time alone. The value is ours."""
LEAST_PART = 1 / 2
"""Where the terms of a rule are linear in its probe and hardly depend on x, their rounding is the
same at all points beside x, and would count as an error. Of a random part of the probe it is
another one. This is the least part. The value is ours."""
LARGEST_OF_PARTS = 2.0**-16
"""A rule that casts its probe to sixteen bits has other digits for a part of the probe as well, and
its errors of 0.4 % would be rounding in double precision. That is allowed up to this part of the
derivative, which lies between the digits of float32 and those of sixteen bits. The value is
ours."""
NOISY_PART = 2.0**-6
"""A rule that divides rounding by nearly zero, as a divided difference does next to a tie, is off
by noise, of which two points beside x may show a small part. Where they move an automatic number by
at least this part of what it is off by, `NOISY_DRAWS` pairs are asked. Without it such a right rule
fails at one seed of six. So does one whose large terms cancel, and which changes by steps, where
they do not move it at all. The value is ours and has no derivation."""
NOISY_DRAWS = 4
"""This many pairs of points beside x, each twice as far as the one before, are asked about an
automatic number that is noisy there; see `NOISY_PART`. The value is ours and has no derivation."""
BRANCH_REACHES = (2.0**4, 2.0**10, 2.0**16, 2.0**30)
"""A rule that takes another branch on one side of x changes by the step between its branches where
x moves by a unit of rounding, and a wrong rule would be allowed that as its rounding. What stays
the same at so many times that move is a branch. At the farthest, which is 2^-21 of x in float64, a
smooth derivative has not changed, and numbers that are rounded to float32 inside have been rounded
anew. In narrower dtypes those are left out that are more than `COARSE_EPS` of x. The values are
ours."""
BRANCH_PART = 1 / 4
"""Values on one side of x count as the same where they differ by no more than this part of the step
from x to them. Rounding keeps three values within it in one case of fifty; with a smaller part a
branch whose own values are rounded would pass for rounding. The value is ours."""

# ---- A reference given by the user

REFERENCE_DISTANCES = (2.0**-6, 2.0**-7, 3 * 2.0**-8, 2.0**-8)
"""An exact reference has no error bar that could cover the rounding of the automatic side. What is
within `EXACT_UNITS` units of rounding of f's values, or of a dtype of sixteen bits, may be computed
from values that stand still closer by. There the two are compared again at these distances over the
scale of x, and the scatter of their relative deviation is allowed. A wrong formula is off by the
same part at all of them; a single wrong entry seen through a projection is not, so that errors that
f's values could show are not asked here. The values are ours and have no derivation."""
FOLLOWED_DISTANCES = (2.0**-20, 3 * 2.0**-21, 2.0**-19, 3 * 2.0**-20)
"""An error of 1e-8 that is another part of the derivative at `REFERENCE_DISTANCES` would pass as
rounding. Closer by, at these distances over the scale of x, it is the same, and what it is an error
of still moves by far more than it. The values are ours and have no derivation."""
FOLLOWED_PART = 1 / 8
"""Beside an exact reference an automatic value that is off by less than the rounding of f's values
may be made of these. It is not where it is off by the same at all of these points, but for this
part, while its reference moves by the inverse of this part times as much. The value is ours."""
ITERATED_UNITS = 64
"""An engine ends the iterations of a decomposition early, and what is left is the same at all
points close by, so that no scatter shows it: right singular vectors of a matrix of nine numbers
failed by 1e-13. A derivative of what a decomposition gives may be off by what it changes by where x
moves by so many units of rounding. LAPACK drops couplings of `2^-53 * min(100, 2^(53 / 8))` of the
numbers beside them when it iterates for singular values (dbdsqr), which is 49 units; to allow the
next power of two is ours."""
REFERENCE_VALUE_UNITS = 64
"""f and its reference are rounded differently, and every reference would be another function. A
difference of up to this many units of rounding of f, relative to the median of its leaf, needs no
explanation. The value is ours and has no derivation."""
REFERENCE_VALUE_DISTANCES = (2.0**-12, 2.0**-10, 2.0**-9, 2.0**-8)
"""A difference in value may be cancellation inside of f, or another function. It is taken again at
these distances from x, relative to it: cancellation is scattered there. The values are ours and
have no derivation."""
SCATTERED_PART = 1 / 2
"""Cancellation inside of f would make its reference another function, and what larger terms leave
of a small image would be an error of the rule. A gap that varies between points by more than this
part of itself counts as rounding. With a smaller part a function that differs from f by a wave
would pass as rounding. The value is ours and has no derivation."""

# ---- Kinks and other points without a derivative

JUMP_BAR_PART = 1 / 64
"""To look for a jump costs six evaluations, and most outputs have none. It is looked for only where
the error bar exceeds this part of the derivative. The value is ours."""
JUMP_BAR_UNITS = 1024
"""Noise widens error bars as a jump does. A jump is looked for only where the bar exceeds this many
units of rounding over the step. The value is ours."""
LASTING_UNITS = 16
"""Rounding is the same at all steps where f stands still, and would count as a jump, or over the
step as a kink. What lasts at shrinking steps has to exceed this many units of rounding of f. The
value is ours. With 2 or 128 in its place no verdict of 60 cases of the zoo changed."""
BEND_UNITS = 4
"""Half of the gap between two slopes is known to the rounding of f over the step, and so far the
values between them reach: three values of f and the rounding of their sum. Without it the slope to
one side failed for a sum of many terms with kinks."""
JUMP_KEPT = 0.85
"""At a jump no value is the derivative, and a right rule would fail on its differences. The odd or
even part of f belongs to a jump if it keeps more than this part of its size over steps that shrink.
Noise does not shrink either, but it changes from step to step, so more is asked for than by
`KINK_ORDER`. The value is ours. With 1/2 in its place no verdict of 178 cases of the zoo at kinks
changed."""
KINK_EXPONENTS = (8, 12, 16, 20)
"""A check at a special point fails at a kink of f, and a wrong rule must not be excused wherever f
might have one. The one-sided slopes are taken at these steps, binary exponents relative to the
scale of x, and a kink is what stays apart at all of them. The values are ours and have no
derivation."""
NARROW_KINK_EXPONENTS = (3, 5, 7, 9)
"""Steps of 2^-12 and less leave a slope few digits in single precision. These exponents stand in
for `KINK_EXPONENTS` there. The values are ours and have no derivation."""
ENDLESS_EXPONENTS = (8, 16, 24)
"""Slopes to one side of x over steps of these binary exponents, relative to the scale of x, say
whether f has a vertical tangent there. With two of them a step of a staircase would look like one.
The values are ours."""
ENDLESS_GROWTH = 1.5
"""At a vertical tangent the slope grows by this factor at least from one of these steps to the next
one: by 16 for `sqrt` at 0, and by 1.7 for `x**0.9`. That of a smooth function stays. The NaN of
`|x|**0.95` fails. The value is ours."""
ENDLESS_ENTRIES = 32
"""So many entries of x with a gradient that is not finite are asked for a vertical tangent, at six
evaluations each. If all of them have one, the others count as well. The value is ours."""
KINK_ORDER = 1 / 4
"""The gap between the slopes of a smooth function to both sides of x shrinks like a step h, and
that of a kink does not shrink. A gap that shrinks by less than this power of h is one of a kink.
The value lies between the two, 1 and 0; it is ours. With 1/16 in its place 8 of 178 cases of the
zoo at kinks were judged worse, which are `x log x` at 0, and with 1/2 none."""
VISIBLE_KINK = 1e-3
"""Differences of a smooth function leave small defects that do not shrink, such as those of its
rounding. At a special point, where a kink excuses the rule altogether, a defect counts only if it
is this part of the slope, and so it is where a value agrees with the mean of two slopes. Where a
value in doubt still has to lie between the slopes, a smaller one counts as well. The value is ours
and has no derivation."""
SLOPE_UNITS = 2.0**20
"""A slope of few digits shows no derivative, and a check that fails for it says nothing against the
rule. An input that moves f by less than this many units of rounding is named as one that hardly
moves it. With 2^20 units six digits are left; the value is ours."""
RANGE_MARGIN = 64.0
"""At the ends of the range of a dtype products in a right rule overflow or are flushed. A
derivative within this factor of the ends is not expected to be right. The value is ours and has no
derivation."""
SILENT_KINK_STEP = 2.0**-6
"""A rule that gives the mean of both slopes at a kink (half of each of two equal numbers to `max`)
agrees with two evaluations, and one that is wrong on both sides would pass by that. It shows in
these same values that f bends by more than `VISIBLE_KINK` of its slope; a smooth function bends by
about the step, which is 2^-17 of the scale of x. What bends faster is asked at this part of the
step. The value is ours."""
POINTS_BESIDE_KINK = 2
"""At a kink a rule that is wrong on one side would pass. It is judged at this many points beside x,
the second opposite to the first in every coordinate. The value is the least that has both sides."""
PAIRS_BESIDE_KINK = 3
"""Near a point with ties differences may cross the next kink, and say nothing. Another pair of
points is taken then, up to so many; the last one lies closer. The value is ours."""
SETS_THAT_BEND = 48
"""A rule that is wrong only where another entry of x is special would pass beside a kink. To move
what bends f alone, so many sets of entries are tried, four evaluations each: three kinks among a
million entries take as many. The value is ours."""
KINK_REACH = 0.01
"""Farther off x lies the next kink, and closer to it the steps of differences reach back across
this one. The points beside a kink lie this part of the scale of each input away. The value is ours
and has no derivation."""
NARROW_KINK_REACH = 0.06
"""In sixteen bits `KINK_REACH` is lost in the spacing of the numbers. This distance stands in for
it there. The value is ours and has no derivation."""
KINK_REACH_REDUCTION = 1 / 16
"""Close to the edge of a domain f has no finite value at the first points beside a kink, and where
one entry of x is far larger than what f varies over it stands still there; nothing could be judged.
Points at this part of the distance are tried after them. The value is ours and has no
derivation."""
KINK_REACHES = 5
"""Points beside a kink are taken at so many distances, down to 1.5e-7 of the scale of x; closer to
it all steps of differences reach back across the kink. The value is ours."""
MOVES_SHORTER = 1 / 16
"""An output moves, and does not jump, if over this part of a step it moves by no more than four
times this part of what it does over all of it. The value is ours."""
ONE_SIDED = (2.0**-16, 1e-6)
"""One-sided slopes at a kink are taken over this step, relative to the scale of x, and over half of
it. A value counts as outside of them by this part of their size. Curvature is extrapolated, and
what is left of it is of the order of the step squared. Both numbers are ours."""
NARROW_ONE_SIDED = (2.0**-7, 2e-2)
"""A step of 2^-16 leaves a slope few digits in single precision. This pair stands in for
`ONE_SIDED` there. Both numbers are ours and have no derivation."""
CHANGED_SLOPES = 4.0
"""Where f jumps by a little at x (`softplus` of PyTorch at its threshold), the slope that is
extrapolated from two steps is off by three times what it changes by between them. A value may lie
outside of the slopes by this many times that change. The value is ours."""
STRAIGHT_PART = 1 / 8
"""At a jump, or at a vertical tangent, a slope changes by about its own size where the step is
halved, and there is nothing that a value could lie between. An output counts only if its slopes
change by no more than this part of their size. The value is ours and has no derivation."""
KINKED_GROUPS = 8
"""Mistakes of opposite signs at several kinks may cancel in one cotangent. The outputs with a kink
are therefore pulled back in at most this many groups; up to as many outputs are compared one by
one. The value is ours and bounds the cost."""
BESIDE_TANGENTS = 6
"""Whether slopes add up is looked at beside so many tangents. Of three equal numbers the middle one
is the same along two tangents and along their sum in about a third of all cases, and then nothing
shows. The value is ours."""
NEAREST_TIE = 2.0**-17
"""Terms of a tie whose weights differ meet where each entry moves by the inverse of its weight. An
entry moves by at least this part of its scale, since less drowns in rounding, so that weights over
five decades are seen to tie. The value is ours."""
PARTS_OF_TIE = (1.0, 1 / 8, 8.0)
"""One term of a tie is the largest where its entry moves by so much less or more than the others
do, and another one where none does. The values are ours; any not close to 1 serve."""
TIES_BESIDE_KINK = 8
"""Reverse mode is asked beside a kink where each of so many entries is the first and the last of a
tie. A rule that claims half more than its share for one of eight ties is 6 % outside of the
generalised derivative, along a single tangent, which the rows at these points tell. The value is
ours and bounds the cost: four pullbacks an entry."""
SEPARATION = 1e-3
"""A row is looked at along the tangent that separates it from those beside a kink if it is farther
from them than this part of its size: curvature parts them by less. The value is ours."""
DEFECT_STEPS = (1.0, 2.0**-3, 2.0**-6)
"""What slopes fail to add up by shrinks like the step where f is smooth, and grows as the step
shrinks where it is noise. At ties it stays what it is. It is looked at over these parts of the
step, of which the latter are taken where the first shows something. The values are ours."""
DEFECT_FACTOR = 32.0
"""Where slopes do not add up, a value may lie outside of them by so many times what they fail to
add up by: the largest of what a few tangents show is less than what the generalised derivative
allows. The value is ours and has no derivation."""
SECANTS_BESIDE_KINK = (4, 128)
"""At a kink that is neither convex nor concave (a median of ties, a sum of rectified units with
factors of both signs) right derivatives lie outside of the one-sided slopes. Before a value fails
for that, as many long secants beside x, and as many short ones, must lie between the slopes, and f
must bend to the same side about x along all of them; or the value must lie outside of all of them,
which are few different ones. With 24 short ones a trimmed mean of ties failed at one of ten seeds;
a slope that one secant in ten has is missed once in 7e5 times. The values are ours."""
JUMP_BEYOND = 16.0
"""A window of a ladder has three steps, each four times the one before. A jump says something
against its slope where it lies beyond this many times the shortest of them. The value follows."""
JUMP_REACH = 16.0
"""A jump beside x counts as a rounding inside of f where it is no farther off than this many of the
first steps, which is 2^-14 of the scale of x in float64. The value is ours."""
BISECTIONS = 24
"""A jump between two points is looked for by as many bisections. In double precision they end well
above the spacing of x. The value is ours."""
SHRUNK_JUMP = 16.0
"""Where f is smooth and fast, what lies between the ends of the bisected interval shrinks with it.
There is no jump once it has shrunk by this factor. The value is ours."""
FEW_SLOPES = 4
"""A median of ties has a few slopes along one tangent, a network of rectified units as many as its
units make, of which secants find a part, and a right one would fail by the others. Secants count
where no more values than this are found again. The value is ours."""
SEEN_AGAIN = 4
"""A value of a secant is found again if it is found so many times. The value is ours."""
OFTEN_SEEN = 1 / 12
"""The least and the greatest value of a secant are each this part of all secants at least, or they
tell nothing. Of a mean of eight among twelve numbers with ties secants found four of five slopes,
the greatest of these nine times in 128, and the right derivative failed, whose slope was the fifth.
The median and the largest of ties have slopes that one secant in four has. The value is ours."""
SELDOM_SEEN = 1 / 16
"""Values that are not found again, such as those of secants across a kink, may be this part of all
secants at most, since their part estimates what was never met (Good, Biometrika 40, 1953). Of a
median absolute deviation of ties ten in 128 were found once, and the right derivative failed, whose
slope was not among them. The value is ours."""
FAR_OUT = 1
"""Where secants take more than a few values, what they did not meet lies not far outside of what
they met. A value fails that is outside by this part of their range, if no more than `SELDOM_SEEN`
of all secants have values that are not found again, and one that is outside by a multiple of it
with as many more. Without it derivatives of -20 and 30 at the kinks of five units with weights
of both signs passed; with half of it a right median absolute deviation failed at one seed of fifty.
The value is ours."""
MOST_ONCE = 0.5
"""Where more than this part of the secants have values that are not found again, they tell nothing,
however far outside a value is: 256 rectified units have a zero that is far outside of what 128
random secants meet, and right. The value is ours."""
SECANT_REACH = (2.0, 1 / 32)
"""The long and the short secants beside a kink reach so many steps to both sides: over the points
from which they are taken, and over a small part of their distance. The values are ours."""
CLOSE_TO_TIE = (2.0**-3, NEAREST_TIE)
"""Where secants beside a kink are taken along the gradient that a rule claims, the entries that it
is largest in move less, so that the tie that it chose is the one that is met: down to these parts
of their scale in turn, and in narrow dtypes to the first of them. The values are ours."""
SECANT_ERRORS = 16
"""A secant beside a kink counts as outside of the slopes at x by this many of their errors, since
it has curvature that they do not have. What a secant may leave them by unseen, a value may as well.
The number is ours and has no derivation."""
CLIMB_SECANTS = 96
"""Before a value fails at a kink, so many secants are taken at points that are sought for being
steep. Without them the right derivative of a median absolute deviation of whole numbers failed at
one seed in twelve: its slope is that of two choices at once, of which random secants had met each.
With 48 that of 40 numbers still failed at eight of 54 draws at inputs that were picked for
failing. The value is ours and bounds the cost, ten evaluations a secant."""
CLIMBED_PART = 1 / 4
"""Where the `CLIMB_SECANTS` brought the slopes nearer to the value by this part of what is left,
there may be steeper ones, and as many are taken once more. The value is ours."""
CLIMBED_ENTRIES = 8
"""The points of `CLIMB_SECANTS` are sought along so many entries, those that say most along the
tangent. The value is ours and bounds the cost of one round."""
CLIMB_SPAN = 4.0
"""An entry is moved between so many of its spreads to both sides, past all that it may be tied
with: of a thousand normal numbers none but one in sixteen draws is farther out. The value is
ours."""
CLIMB_HALVINGS = 8
"""The place where f is steepest along an entry is found by so many halvings, to within 2^-8 of the
range of `CLIMB_SPAN`, which is less than the distance of two of a dozen ties. The value is ours."""
CLIMB_SPREADS = 6
"""Numbers that are equal at x are spread by a factor from 1 to 2^-5 of their own. With one and the
same for all, the right derivative of a median absolute deviation times a range failed at five seeds
of 108: as the median moved to its place, what is left of the others changed its order. The value is
ours."""
CLIMB_REACH = 2.0**-9
"""The secants of `CLIMB_SECANTS` reach so many steps to both sides, so that they stay between the
kinks there: with 2^-5 one of them was 7e-4 short of the slope, and the right derivative failed. The
value is ours."""
ROW_POWERS = (1, 5)
"""An entry of reverse mode that claims more than it may weighs most along the row itself. Along the
fifth power of the row the largest entries are nearly alone. The values are ours."""

# ---- Saturation

SATURATED_UNITS = 16
"""Two evaluations show zero for a derivative below the rounding of f, whether it is right or not.
An entry is looked into where a move of x by its scale would change f by at most this many units of
rounding. Sums in double precision leave several of them; the value is ours."""
NARROW_NEGLIGIBLE_UNITS = 2
"""In a dtype that the user chose for being narrow, 16 units of rounding would hide derivatives that
matter. This number stands in for `SATURATED_UNITS` there, where zeros are excused. It is ours."""
NEGLIGIBLE_TOLERANCES = 8
"""An entry that vanishes beside the rest of its block would leave every check open whose error bar
is wide against it. It may pass up to this many times `rtol` of the largest entry. The value is
ours."""
NEGLIGIBLE_PART = 0.25
"""In sixteen bits eight times `rtol` is nearly all of the derivative, and every small entry would
be excused. No more than this part of the largest entry is. The value is ours."""
BESIDE_NOT_FINITE = 2.0**-16
"""An output that is -inf at x and beside it is left out, and one that is finite beside x is not.
f is looked at so far from x, over its scale. At the longer steps of float32 a mask that follows the
sign of x may change, and a right derivative would stay open. The value is ours."""
BESIDE_NOT_FINITE_UNITS = 4
"""In sixteen bits that distance moves nothing, and it is at least so many units of rounding. The
value is ours."""
TAIL_DISTANCE = 2.0**-8
"""A derivative of zero hides the tail of a saturated function, and is right at a stationary point.
f has to keep its value this far from x, over its scale, for a tail: a power of x with an offset of
its own size, up to the sixth, has left it by more than rounding there. The value is ours."""
SATURATION_DISTANCES = (1.0, 0.25)
"""A zero derivative of an input that f does not read is right and must not be open. f is asked at
these distances, over the scale of x, whether it moves at all. The values are ours and have no
derivation."""
UNDERFLOW_DISTANCES = (0.5, 0.25, 0.75)
"""The derivative of a softmax that is saturated is zero where it falls below the smallest number,
and looks like a zero that a wrong rule gives to a tail. The rule is asked at these distances, over
the scale of x, for the tail that it follows. The values are ours: a tail that is zero at x and is
seen to move within its scale is between 1e-32 and the smallest number over much of the way."""
ONSET_HALVINGS = 10
"""Where f begins to move, a kink and a tail look alike from far off. The place is closed in by this
many bisection steps: a kink that is met within `2^-10` of the scale of x moves f by more than
`ONSET_UNITS` at once. The value follows from that. With 80 in its place 3 cases of the zoo took
three times the evaluations, and no verdict changed."""
ONSET_UNITS = 64
"""The dead side of a relu has a derivative of zero that is right, and the tail of a sigmoid one
that is wrong. A smooth function begins to move by no more than this many units of rounding; a kink,
a clip or a step moves by more at once. The value is ours and has no derivation."""
LADDER_ZERO_UNITS = 1536
"""A derivative of zero is accepted only if differences can show it, up to the rounding of f. A
ladder of long steps has to show it to this many units of rounding over the scale of x. That is half
again the error bar of its longest window, whose shortest step is 1/64 of that scale."""
STILL_PART = 2.0**-10
"""An output that stands still over a shorter step was rounded on the way, and shorter steps may
show less than longer ones then. One whose error bar is a smaller part of the widest one has no say
in this: beside a row whose numbers are a millionth of theirs the outputs of other rows stand still,
and the right rule of a normalisation was left open. The value is ours."""
STANDSTILL_UNITS = 2.0**10
"""Noise about a constant, as that of `sin^2 + cos^2`, looks like the onset of a tail. Farther off f
has to move by this many units of rounding. The value is ours and has no derivation."""
NARROWEST_STAIR = 2.0**-27
"""Stairs that only shorter steps than those of a ladder show are those of f where x stands on one
that is as wide as this over the scale of x. Narrower ones are the rounding of larger numbers on the
way, as in `(x + 1e8) - 1e8`, whose derivative is that of their slope. With a larger value the zero
derivative of a quantiser of 20 bits fails. The value is ours."""
NARROW_STAIR = 2.0**-16
"""Stairs that are narrower than this over the scale of x may be the rounding of larger numbers that
cancel, and count as stairs if they go to one side. Without that the right derivative of
`1 / sin(x) - 1 / x` at 1e-4 fails at most seeds, and zero passes at some. It saves the time that
this takes where stairs are wider. The value is ours."""
CLAMP_ROW = 6
"""What stands still about x leaves its value without a jump where it is farther off at each of so
many points in a row. Without such points the dead side of `relu(sin x)` at 1e4, which is narrow
beside x, is taken for the rounding of larger numbers, and the right derivative fails at nine seeds
of ten. The stairs of a cancelling sum are as wide as the part in which it stands still, so that no
six points in a row lie on six of them. The value is ours."""
CLAMP_RATIO = 2.0 ** (1 / 16)
"""The points at which the end of a clamp is looked for lie by this factor apart. A clamp ends
somewhere between two of them, and with a larger factor a wave behind it is past its top at the
sixth. The value is ours."""
CLAMP_PART = 0.25
"""At the first of these points a steady value has gone at most this part of the way to the last
one: about a fifth for a straight line, and more for a wave that bends. At the edge of a stair it is
all of it. The value is ours."""
CLAMP_POINTS = 64
"""So many points to each side of x, four octaves, are looked at for the end of a clamp. Each step
of a ladder is four times as long as the one before, so with half as many an end that lies just
before the next step is followed by too few points. The value is ours."""
CLAMP_STEPS = 4
"""The end of a clamp is sought from at most so many different steps of a ladder. With one, an entry
close to its kink hides the widths of the others. The value is ours and bounds the cost."""
STAIRS_SEEN = 24
"""So many points to each side of x, `PART_OF_STAIR` apart, are looked at for stairs that go both
ways. With a few of them the rounding of larger numbers seems to go one way. The value is ours."""
PART_OF_STAIR = 0.1458980338
"""The distance of the points at which stairs are looked for, as a part of the width of a stair; it
is irrational, so that they have no rhythm in common with it. Over three times that distance the
slope of f hides that stairs go both ways at one seed of thirty. The value is ours."""
STAIRS_ALONE = 4
"""So many entries of x are moved, each alone, to see which way narrow stairs go. Where several move
together, a sum of quantised numbers goes both ways. The value is ours."""
STAIR_SPACINGS = (3, 4, 5)
"""Where f is judged in a wider dtype than the caller's, and leaves its value closer to x than the
first of these numbers of spacings of the caller's dtype, it counts as stairs if it stands still
from the first to the last of them to one side of x. Closer still any x may lie to an edge, and the
zero derivative of a quantiser of 16 bits would fail. The values are ours."""
TURN_UNITS = 64.0
"""Where rounding may turn a comparison, whether f follows its exact replay or differences is seen
over the step in which the two are this many units of rounding apart. With fewer the rounding of
twenty operations would decide. The value is ours and has no derivation."""
TURN_DISTANCE = 4.0
"""f is looked at this many of these steps off x, since x itself may stand on an edge where rounding
turns a comparison. The value is ours."""
USUAL_CONSTANT = 1 / 8
"""`log(1 + x)` and `1 - cos x` at small x are staircases, whose stairs are a unit of rounding of 1
or less. Small outputs that move by less than `ONSET_UNITS` of rounding of this move by rounding,
for all that is known: without it their right derivatives fail as those of stairs. The value is ours
and follows from that."""
LOPSIDED_FACTOR = 4
"""In a tail f moves more to one side than to the other. Where it has moved by `STANDSTILL_UNITS` to
one side, and by 16 units or fewer per scale of x at x itself, a tail that falls off as `exp(-x)`
does has moved by less than this part of it to the other side. At a stationary point the two differ
by what the third derivative adds. The value is ours."""
CHANCE_PART = 1 / 128
"""A derivative that crosses zero is small in a few entries by chance, and each would cost
comparisons of its own. Small entries are compared once more by themselves only if they are more
than this part of their leaf, and small outputs only if as many would be that small with less than
this probability. The value is ours and has no derivation."""
LONG_ENOUGH = (2.0**-10, 8)
"""The truncation of a central difference is the square of its step over the scale of x, times a
number that differs from function to function and is a sixth for `sin x` at 1. What was taken out of
a larger column may be off by the first part, or by so many squares where that is more. With less a
tail of softmax takes a ladder; with more an error of a hundredth passes where f shows a thousandth.
The values are ours."""
FAR_BELOW = 0.1
"""Where a longer step has shown an error of a hundredth in what was taken out of a larger column,
entries below this part of the largest one are taken out once more: in these it shows no error that
is smaller than a tenth. Without it a zero in place of the smallest of `sum(x)`, where x goes from
1e-4 to 2e6, passes at every seed. With a hundredth an entry may be off by all of itself. The value
is ours."""
DOMINATING_FACTOR = 64
"""A constant among the outputs, such as a mask of -1e30, has rounding of its own size, which hides
all other outputs of a projection. An output that stands still and is this many times the largest of
its leaf that moves is left out of a column. The value is ours and has no derivation."""
SATURATED_COLUMNS = 4
"""A column below the rounding of f may be saturated, and its wrong zero would pass without a ladder
of long steps; but inputs that f does not read look the same, and each would cost a ladder. No more
columns than this get one. The value is ours."""

# ---- Affine functions, and ill-conditioning

THIRD_POINT = 0.37
"""A staircase whose steps divide the long step, such as `x + 0.1 floor(4 x)`, has three values on a
line. f is tried at this part of the long step as well. The value is ours: it is no ratio of small
numbers, as the steps of most staircases are."""
SHORTEST_LONG_STEP = 1 / 16
"""Over a short step a curved function looks straight, and a right rule would fail on its curvature.
A long step has to have this part of the scale of x. The value is ours and has no derivation."""
LONG_STEP_COLUMNS = 4
"""Long steps show a constant that is wrong in the twelfth digit, and each costs three evaluations.
This many columns of a full table get them, and two for each leaf of a projected one; a wrong
constant shows in the first of them. The value is ours."""
FEW_TERMS_UNITS = 16
"""An affine function of few entries may take several operations for each of them, and a right one
would not lie on a line. Its values may be off by this many units of rounding, beside those that
grow with the number of entries. The value is ours and has no derivation."""
SUM_ROOT_UNITS = 2
"""A sum of n terms is off by about sqrt(n) units of rounding (Higham and Mary 2019). An affine
function may be off by this many times as much; the factor is ours."""
SHORT_SLOPE_BARS = 4
"""The short slope of an affine function has an error bar that is a guess, and the function would
not count as affine where that is too narrow. The long slope may lie this many bars from it. The
value is ours and has no derivation."""
LINE_UNITS = 8
"""Four slopes of one affine function are rounded differently, and it would not count as affine.
They may differ by this many times the rounding of their values. The value is ours and has no
derivation."""
SECANT_UNITS = 4
"""A long slope is rounded as well, and a right rule would fail on that. It may be off by this many
times the rounding of the values of f. The value is ours and has no derivation."""
SCATTER_FACTOR = 32
"""The slopes of an affine function scatter by rounding, and so few of them say little about how
much. The automatic value may be off by this many times their scatter. The value is ours and has no
derivation."""
CURVATURE_BARS = 4
"""A curvature that stays below the rounding of f may still bend a long difference by as much as its
error bar. A gap has to exceed this many times the allowed rounding. The value is ours and has no
derivation."""
CONDITION_UNITS = 8
"""A matrix that f captured and factors alike each time is rounded alike at all points, so that
points nearby do not show that it is rounding. This many units of rounding, times the square of the
spread of singular values, are allowed. The square covers a map that was made from an
ill-conditioned one, as the inverse of a product; the value is ours."""
BIDIAGONAL_STEPS = 8
"""An ill-conditioned map without the spread of its singular values cannot be told from a wrong
rule. The bidiagonalisation (Golub and Kahan 1965) takes this many steps, each a difference and a
vjp. A spread that needs more steps to show is underestimated. The value is ours."""
NEGLIGIBLE_SINGULAR_VALUE = 1e-10
"""A remainder of the bidiagonalisation that is rounding would count as a singular value, and any
gap would be excused. The iteration ends below this part of the largest singular value. The value is
ours and lies above the rounding of float64."""

# ---- Noise, and values with fewer digits than their dtype

BAR_ROUNDING_UNITS = 16
"""What a coarse window is off by may be rounding of a finer one, or truncation. Beyond this many
times its rounding it is truncation that is left. Sixteen are far more than rounding does; the value
is ours."""
SMALLEST_MOVE_BITS = 8
"""An output that stands still in some windows of a ladder moves by a unit of rounding in others,
and its differences in between would have an error bar of zero. A smallest move of up to this many
times the lowest bit of all values counts as such a unit. The value is ours and has no
derivation."""
SMALLEST_MOVE_PART = 1 / 16
"""Where all values have few bits (counts, say), their lowest bit is no rounding. A move counts as a
unit of rounding by its bits only if it is smaller than this part of the output. The value is ours
and has no derivation."""
SMALLEST_MOVE_UNITS = 64
"""Values such as those of `1 - y` with y near 1 move by the rounding of larger numbers. A smallest
move of up to this many units of rounding of the largest value of the leaf counts as a unit of
rounding as well. The value is ours and has no derivation."""
LATTICE_UNITS = 2.0**8
"""The tail of `1 + tanh(x)` is a multiple of the spacing of `tanh(x)`, and over a short step moves
by one or two of these or none. Such a lattice counts as the rounding of an output from so many of
its own spacings on: all values of a ladder have that many trailing zeros by chance once in 2^100.
The value is ours."""
USUAL_OUTPUTS = 8
"""Some of many outputs agree by chance far better than their noise allows. From this many outputs
of a leaf on, no disagreement is taken for smaller than their median; a median of fewer would itself
be small by chance. The value is ours."""
MEASURED_BARS = 1.5
"""Where the noise of f was measured it is known better, and what a finer window is off by beyond
this many of its bars, four standard deviations of a difference, is no noise. With sixteen the
longest steps were believed where many kinks lie between the steps, as in a network of relus in
single precision, and right derivatives failed. The value is ours."""
SHARPER_BARS = 4
"""Once noise is measured longer steps are believed, which may cross many kinks. An automatic value
that the ladders before that allow does not fail by it, unless the error bar is narrower by more
than this factor. The value is ours."""
KINKED_BENDS = 4
"""Where f has kinks between the steps, a central difference is off by about as much as its bends
are no smooth ones, which is a draw of the same kind: right derivatives of relu networks in single
precision were off by up to twice that. The error bar of what fails is wider by this many times. The
value is ours."""
STEADY_CHANGE = 0.9
"""The windows of `x log x` at 0 move by the same from one step to the next, to rounding, and never
converge; those of `|x|^1.1`, which do, move by 0.87 of it. What lies between is ours."""
SHARED_ROUNDING = 1024
"""The outputs of a matrix product are rounded as the terms that they add up, and some are small by
chance. The windows of an output may be taken to move as is usual in its leaf by no more than this
many times its own rounding: what is smaller still is no chance among a thousand outputs, and what
moves all of them by more is no rounding. The value is ours."""
ALIKE_PART = 0.5
"""Rounding moves the last windows of an output up or down by chance: of the four ways in which
three moves may follow one another, up to a sign, a third of many outputs go the most frequent one,
by the correlation of neighbouring moves. A wave or a kink next to x sends all outputs one way. If
more than this part of a leaf go one way, it is no rounding that they share. The value is ours."""
SUMMED_OUTPUTS = 256
"""What truncation leaves of each output is below its rounding, and adds up where rounding does not:
a right rule of 1e5 outputs in single precision failed. Their sum is estimated as one function as
well. Of fewer outputs than these it counts only where it is another number: a single ladder may be
sharper than theirs by chance. The value is ours and has no derivation."""
FULL_DIGITS_PART = 1 / 8
"""What cancels stands still as well, for want of digits. Outputs below this part of the largest in
their leaf do not count as standing still. The value is ours."""
FAR_STEP = 128
"""A norm that is rounded to float32 inside may stand still over short steps, which then agree on a
derivative without its term. Before they prove an error, a step this many times as long is asked
whether it sides with the automatic value: in float64 it is 8e-4 of x, over which what float32
rounds has moved. The value is ours and has no derivation."""
INSIDE_NOISE = (1 / 64, 8)
"""A function that computes in a narrower dtype inside would fail by the tolerances of float64.
Rounding once has a standard deviation of 1/7 to 2/7 of the spacing; what is added to it and what
amplifies it make the noise smaller or larger. It counts as that of a narrower dtype between these
many spacings. Below the first one the rounding inside is within the tolerance of identities in
float64. The values are ours."""
INSIDE_POWERS = (0.45, 0.36)
"""The steps over which such noise is sampled, as powers of the spacing at 1 of the narrower dtype:
8e-4 and 3e-3 for float32. They are long enough for roundings that are independent of each other,
also of a norm that hardly changes, and too short for a smooth function to leave its polynomial.
From the one to the other what a fast function leaves over grows by `4^5`, which is more than the
range of `INSIDE_NOISE`, and rounding does not grow. The values are ours."""
INSIDE_GROWTH = 8
"""Rounding does not grow from the one step to the other, and what grows by more than this has to be
there over a shorter one as well (`SHORTER_INSIDE_POWER`). The logarithm of a matrix with an
eigenvalue of 1e-4 leaves over 5e-9 and then 2e-7, both of which float32 could, and a rule that is
off by 1e-4 throughout passed by the digits of float32. The value is ours."""
SHORTER_INSIDE_POWER = 0.6
"""Over a step of some hundred spacings of float32 a smooth function leaves nothing over, and what
is rounded does; see `INSIDE_GROWTH`. The value is ours."""
INSIDE_MAGNITUDE = 2.0**-6
"""Stairs of 0.01 at 5000 are as noisy as rounding to float32, and a straight-through gradient
passed. Rounding of x times this is noise of the same part of f, or of less where f has an offset;
that of stairs is larger by this factor. The value is ours: it is beyond the range of
`INSIDE_NOISE`, in which noise lies at x."""
NOISE_POINTS = (32, 31, 29, 28, 25, 24, 21, 19, 18, 16)
"""Noise of f that is larger than its rounding makes right derivatives fail. It is sampled at these
points, in 32nds of a step, which are exact in any dtype. Their number leaves five residuals beside
the five coefficients of the polynomial; the choice is ours."""
UNEVEN_NOISE_POINTS = tuple(k - 0.5 * ((k * 0.6180339887) % 1.0) for k in NOISE_POINTS)
"""At points that are multiples of one length, rounding to a lattice may be the same everywhere, and
the noise would be measured as zero. In float64, where points need not be exact, they differ by
multiples of the golden ratio. The choice is ours. With five points, which leave no residual, 3 of
20 cases of the zoo that read them were judged worse."""
NOISE_DEGREE = 4
"""What a polynomial leaves over is noise only if the polynomial can follow f. It has this degree:
the truncation that it leaves is of the order of `(h / 4)^5`, so that a smooth f looks as smooth as
it is. The value is ours. With 32 in its place 3 of 20 cases of the zoo that read it were judged
worse, and with 1 none, for 6 % more evaluations."""
LONE_JUMP = 64
"""What f jumps by between two of the points at which its noise is measured would count as noise
however smooth f is on both sides, and a straight-through rule about rounding stayed open for it in
one check of five. A move so many times as large as every other one is a jump, and is left out. The
value is ours: points next to each other are at most 4 times as far apart as others."""
LONE_JUMP_PART = 2.0**-6
"""A single step of values that are rounded to few digits would be left out as a jump, and right
derivatives fail. A jump is at least this part of the value: bfloat16 has steps of 2^-8 of it. The
value lies in between, and is ours."""
STAIRCASE_PART = 1 / 2
"""On a staircase most neighbours are equal, and what a polynomial leaves over is far smaller than
what rounding to a step hides. Values count as those of a staircase where this part of neighbours
are equal; the noise is then at least half of the smallest move. The value is ours."""
FEWER_BITS = 3
"""Values may need a few bits less than the points that they come from by chance. f rounds to a
dtype only if the points need more bits than that by this many. The value is ours."""
TYPICAL_RESIDUALS = 1
"""Five residuals may show a hundredth of the noise by chance. What is typical of the leaf counts as
so many more. Without it and the noise of a lattice 3 of 1,440 checks fail that are right (eight
functions that cancel, in float64, six numbers of 1e-4 to 0.1), and none with it. The value is
ours."""
NOISE_FACTOR = 2
"""Ten values give the standard deviation of noise to some tens of percent, and noise is now and
then larger than its deviation. The error bar allows for this many deviations. The value is ours and
has no derivation."""
SHORTER_NOISE_STEP = 1 / 8
"""At a much shorter step the noise of f may be another one. It is measured once more where the
ladders, now that noise is known, choose steps below this part of the one before. The value is ours
and has no derivation."""
NARROW_EPS = 2.0**-40
"""A function that rounds to a narrower dtype inside stands still about x, and its right derivative
would be called wrong. The narrower dtypes are those with a spacing at 1 above this."""
FEWEST_BITS = 7
"""Small integers are no rounding: values that need fewer bits than bfloat16 has, less one, say
nothing of a dtype. The value follows from that."""
ROUNDED_REACH = 2.0**8
"""Values that need so many bits, because they are rounded to a dtype of as many, stand still over a
unit of that dtype, and over this many where what is rounded cancels. Without this bound the stairs
of a quantiser that computes in float32 counted as rounding, and their right derivative of zero
failed. Values of sixteen bits have none at this number. The value is ours."""
LARGER_MAGNITUDES = (2.0**24, 2.0**12, 2.0**6, 2.0**4)
"""Stairs of height 1 at 1000 look like rounding to ten bits. At the first of these multiples of x
where f is defined they need more bits, and rounded values as few as before. The values are ours."""
OTHER_MAGNITUDES = (2.0**-14, 2.0**-22)
"""At these multiples of x a rounded input moves f as much as before. Stairs jump at the first by
chance, and a right derivative of prices in cents failed; those over which a ladder has steps have
no jump at the second. The values are ours."""
DRAWS_OF_ROUNDING = 4
"""Where all numbers inside of f move by one spacing, up or down, their moves may cancel. Signs are
drawn twice, and each draw is also taken with all of them turned. The value is ours."""
INSIDE_FACTOR = 3
"""A derivative may be off by this many times what it moves by, from its smallest to its largest
value, where all numbers inside of f move by one spacing up or down. One operation that rounds to
nearest is off by a quarter of that, and its approximation by some units more. Right derivatives of
the suite need 0.92 of it at most, and wrong ones, in its place, are off by 9.7 and more; with 4 an
error of 1e-6 by a factor in float32, which is 7.9 spacings, passes. The value is ours."""
GROSS_POWER = 1 / 4
"""Numbers inside of f are not moved by their rounding where a derivative is off by more than this
power of the spacing of its dtype, as a part of what f has by its own value over the scale of x:
1e-4 in float64. It costs time alone where it is larger. Where it is smaller, a right derivative
whose rule loses so many digits, and f none, fails. The value is ours."""
GROSS_BARS = 2.0**10
"""The rounding of f, which the error bars of differences know, may explain what `GROSS_POWER` calls
large. Numbers inside of f are moved all the same unless a derivative is off by this many of these
bars as well. The value is ours."""
OTHER_VALUE_FACTOR = 64
"""A value is no rounded one where it is off, at x and at all points around it, by this many times
what it moves by where all numbers inside of f move by one spacing up or down. Without it a function
that drew other random numbers in double precision counted as one that loses digits, and the right
derivative failed beside that one. Such values are off by thousands of times that; `INSIDE_FACTOR`
holds for what is rounded. The value is ours."""
RULE_FACTOR = 16
"""Numbers in a narrow dtype may be off by this many times what they scatter by in double, in units
of rounding: a few points show a sixth of it by chance. With 4 the values of `(x + 1e7) - 1e7` in
single precision are another function's at one seed of eight. The value is ours."""
RULE_UNITS = 8
"""What `RULE_FACTOR` allows counts where numbers scatter by more than this many spacings of
themselves. Without it a rule that is 10 % off in bfloat16 alone passes. The value is ours."""
LOST_PART = 1 / 4
"""The right derivative `(x sin x - 2 (1 - cos x)) / x**3` has no digit in sixteen bits at 0.01, nor
has its function. What is off is no error there if roundings of f can make so large a part of it; a
smaller part would hide errors of well-conditioned rules. The value is ours."""
LOST_SIZE = 2.0**-8
"""A square overflows in float16 from 256 on, and what a rule divides by it becomes zero. Without a
bound on what may be lost so, a rule that leaves out an entry of ordinary size beyond some x would
pass; a zero in place of less than this is looked at elsewhere. The value is ours."""
LOST_MAGNITUDES = (2.0**-4, 2.0**4)
"""What has overflowed, or underflowed, at x has not at the one or the other of these multiples of
x, and a term that is missing is missing there. Closer to x it would depend on chance which it is.
The values are ours."""
ROUNDED_JUMP = 64
"""Stairs beside a number of float16, of which little or nothing gets into the outputs, passed for
the rounding of that number. A jump that is rounding is about what the outputs move by where all
such numbers move by their spacing, unless those moves cancel by chance. The value is ours and has
no derivation."""
LEAST_MAGNITUDE = 2.0**-22
"""Where x is small, the second of `OTHER_MAGNITUDES` times x lies below the smallest numbers of
float16, over which nothing moves. The multiple is not taken below this, which leaves two of its
bits. The value follows from that."""
ENOUGH_VALUES = 6
"""A few values end in zeros by chance, and f would be judged as code of a narrower dtype. It takes
this many different values between two powers of two to say how many digits they carry. The value is
ours and has no derivation."""
RUNS_APART = 4
"""The spread of two runs of a function that is not repeatable is often less than that of the next
two, and error bars that cover no more make right derivatives of a noisy function fail. This many
times the spread that was seen is allowed, and suggested as `nondet_tol`. The value is ours and has
no derivation."""

# ---- A narrow dtype against double precision

EXPLAINED_PART = 0.1
"""A right derivative of a function that loses digits in a narrow dtype would be called wrong. Its
deviation from that in double has to account for that of f itself, but for this part, which rounding
of f may take; a derivative that is wrong by itself accounts for nothing. The value is ours."""
NARROW_BIAS_UNITS = 1.25
"""A scalar that multiplies a whole derivative is itself rounded, by up to one unit. In sixteen bits
a leaf may be off by one factor that differs from 1 by this many units of rounding; with
`DERIVATIVE_UNITS` a factor of 1.05 would pass in bfloat16. The value is ours."""
SINGLE_BIAS_UNITS = 10.0
"""Beside an exact replay an entry of a derivative in float32 may be off to one side by this many
units of rounding at all points, as constants that are rounded, and approximations of the functions
inside, put it. Of 15 kernels one does so by one; 1e-6 are 17 units. The value is ours."""
SIDE_POINTS = 64
"""At a few points rounding puts an entry to one side by chance. It is asked at this many for its
side before that counts as an error. The value is ours."""
SIDE_DISTANCE = 1 / 2
"""Close to x roundings are the same, and put an entry to one side at all points. The points at
which it is asked for its side lie up to this part of its entries from x. The value is ours."""
FEW_SIDES = 10
"""Most derivatives are not off to one side at a few points, and no more need be taken. The value is
ours."""
ENOUGH_SIDES = 32
"""Points beyond the domain of f, and those where it loses its digits, are no evidence. An entry is
off only if so many are left. The value is ours."""
ONE_SIDE = 3 / 4
"""An error puts an entry to one side at this part of the points at least. Rounding that is off by
as much as is allowed in the middle does so once in 300 times at 32 points; that of 15 kernels is
off by a fifth of it. The value is ours."""
SURE_SIDE = 7 / 8
"""In sixteen bits an entry that is off by less than `WRONG_FACTOR` times what is allowed may be
rounding or an error. Without being asked for its side a wrong sign of one passed; it is an error if
it is off to the same side at this part of the points. Chance makes that of 32 points once in 50,000
times. The value is ours."""
SIDED_FACTOR = 2
"""An entry that is off to one side at `SIDE_POINTS` is no rounding of its rule if it is off by more
than so many times what it scatters by in double, in units of rounding, in place of `RULE_FACTOR`
times. With that a wrong sign of the slope of a sigmoid passed in bfloat16 at 3, and without any the
right rule of `(1 - cos x) / x**2` fails in float16. The value is ours."""
BIAS_DRIFTS = 2
"""A function whose values are off by a factor in the narrow dtype has a derivative that is, and its
rule is right. A common factor of the derivative has to exceed that of the values this many times.
The value is ours and has no derivation."""
SINGLE_STEPS = (2.0**-7, 2.0**-13)
"""A function that casts to sixteen bits inside has no more digits than these, and differences of
float32 would accuse a right rule. What moves over the first of these steps, relative to x, has to
move over the second. float32 shows both, and float16, with 11 bits, does not show the second."""
VISIBLE_STAIRS = 0.1
"""A small output may stand still beside the others for other reasons. One that does counts only if
its slope over the first of `SINGLE_STEPS` is this part of the largest slope or value of its leaf.
The value is ours and has no derivation."""
ROUNDED_UNITS = 4
"""A kernel that computes in float32 inside, and rounds its gradient to bfloat16, is right and off
by the rounding of every entry. Automatic numbers may be off by this many spacings of the dtype that
they are rounded to; a deviation is traced from one spacing on (`SIGNIFICANT_PART`). The value is
ours and has no derivation."""
CONSTANT_UNITS = 2
"""A rule of float32 or sixteen bits may be off by this many spacings of float32, as part of the
largest number beside it, which is what constants in single precision make: one of them makes half a
spacing, and the root of one or a product with another makes more. Without it right rules with
`torch.where(x > 0, 1.0, 0.1)` or `torch.tensor(1 / 3)` fail, since they are judged in float64. The
value is ours."""
CANCELLED_BY_CONSTANTS = 2.0**-10
"""Terms with such constants may cancel in an entry, which is off by a larger part of itself then,
and by this part at most. Without it an entry that is missing beside one of 1e6 was what a constant
makes. The value is ours."""
CONVERTED_PART = 2.0**-40
"""Two derivatives in double precision are others from this part of the largest number of a leaf on,
which is far below what a conversion to float32 makes, 2^-25, and far above what another order of
additions makes. The value is ours."""
WIDER_PROBES = 4
"""One missing term hides along one random tangent with the probability of its tolerance over its
size, some per cent where tolerances are. Where a formula that passes was judged in less than double
precision, this many further pairs of probes have to agree as well. The value is ours."""
NATIVE_PROBES = 8
"""In sixteen bits differences are off by up to a tenth, and a missing term hides along one tangent
in five; in float32 what normalises 8000 numbers hides along one in two or three. This number stands
in for `WIDER_PROBES` where f does not run in double precision. The value is ours."""
NARROW_BLOCK = 64
"""In sixteen bits the rounding of 3000 outputs hides a wrong sign of one entry of x, which passed
where f runs in no wider dtype. There, what passes is compared once more in blocks of about so many
entries, each without the outputs that do not depend on it. With blocks of 300 an entry of half the
usual size passes. The value is ours."""
NARROW_BLOCKS = 64
"""The most blocks of one input, each of which takes four evaluations: two to see what depends on
it, and two to compare it. Larger inputs have larger blocks. The value is ours."""
OPEN_BLOCKS = 8
"""One entry in which f is noisy (`(sqrt(1 + x^2) - 1) / x^2` at 1e-4) leaves the projection of all
open, and an error of 1 % in all others with it. What is open is compared once more in so many
blocks of all inputs together: a block that is quiet can fail. The value is ours."""
COARSE_RESOLUTION = 0.1
"""Agreement to a quarter of the derivative accepts a missing term as readily as a right rule. A
check that resolved less than this part is INCONCLUSIVE. The value is ours."""
CLOSE_PART = 1 / 32
"""A derivative in bfloat16 that is off by a tenth may agree with an exact one to what is no error
for certain. It is right where no entry is off by more than this part, eight roundings of
bfloat16. The value is ours."""

# ---- One engine against another

STRAY_FACTOR = 2.0**10
"""A difference that does not last from point to point is no error of a formula, and may still be
more than rounding can be. Up to this many times what is allowed it is a note, and beyond it the
verdict is INCONCLUSIVE. The value is ours and has no derivation."""
PLAIN_NUMBER_RTOL = 1e-12
"""Plain Python numbers that engines return beside their arrays are compared as a part of the
structure of the outputs, and a last digit would make another structure. They may differ by this
part. The value is ours and has no derivation."""

# ---- Properties that hold without an estimate

LARGE_PROBES = 2.0**21
"""A gradient that is clipped beyond some magnitude is a right linear map of small cotangents, and
would pass. The second probe is the first one times this, and so all of it is beyond a million. The
value is ours."""
NEARER_TO_ZERO = (0.75, 0.5)
"""A right rule that multiplies numbers near the largest of its dtype (a naive softmax at 350) would
fail for a large probe. It is asked at these parts of x, where such numbers are far smaller. The
values are ours."""
SMALL_PROBES = 2.0**-21
"""A gradient that is cut off below some magnitude, or that divides by a norm plus 1e-8, is a right
linear map of cotangents near one, and would pass. The cotangents of which additivity is asked are
this small, and so below a millionth as that of a mean over a million entries is. The value is
ours."""
SMALLER_PROBES = (2.0**5, 2.0**10, 2.0**15)
"""The vjp of a matrix exponential is a block of the exponential of a larger matrix, whose rounding
is that of the cotangent. For a large one the right rule would be called nonlinear. It loses digits
at these factors as well, where a rule that clips changes nothing yet. The values are ours."""
PERTURBED_PROBES = 1 / 8
"""The rounding of a vjp that cancels inside, as that of `x - sin x` at a small x does, is the same
at many points near x, and it was called not additive. At each point its probes are multiplied by a
factor that differs from 1 by up to this much, so that their products are rounded anew. Without it
the right float32 derivative of `x - sin x` fails at twelve seeds of twelve. The value is ours."""
SMALLER_PROBE_UNITS = 2.0**12
"""A rule that is far off for large probes would pass for one that rounds with their size. Rounding
may be this many units times the factor; that of a matrix exponential of 316 rows was seen to be
2600. The value is ours."""
SMALLER_PROBE_PART = 0.5
"""In single precision a large probe may leave no digit of a right rule, and a gradient that is
clipped would pass for it. What is clipped shrinks as well: less than this part of the image is
left. The value is ours."""
ABSORBED_UNITS = 4
"""Sums of images may be apart by so many roundings of what f does over the length in which it may
move by all of itself. Without them the right rule of a saturated softmax is called not additive, at
every seed in float32 and in sixteen bits, and with 64 a rule that drops small cotangents passes in
float16. The value is ours."""
LOST_DIGITS = 1e-8
"""A derivative that is accepted for its own rounding is told to lose digits where it is off by more
than this part of itself, half of the digits of float64. The value is ours. No verdict depends on
it."""
LOST_AT_FIRST = 1 / 8
"""What loses digits in proportion to its probe has lost at most this part of itself at the smallest
of `SMALLER_PROBES`. In bfloat16 `SMALLER_PROBE_UNITS` excuses any error, and a rule that clips one
term of two passed at every seed. The value is ours."""
LOST_GROWTH = 64.0
"""From the smallest of `SMALLER_PROBES` to the large probe, 65,536 times as large, the loss grows
at least by this factor, or to `LOST_AT_FIRST`. What is clipped is off by one part at every size.
From one probe to the next the loss of a right matrix exponential may stay by chance, so that three
factors of four failed it at four seeds of ten. The value is ours."""
LARGE_PROBES_NARROW = 2.0**3
"""In float16 a probe that is a million times as large overflows, and shows nothing of a clip. The
second probe is the first one times this, since float16 ends at 65504. The value is ours."""
SMALL_NARROW_PROBES = 2.0**-10
"""What a right derivative in a narrow dtype loses by the size of its probe would count as an error
of its formula. Before it does, probes of this size are tried, for which a rule that loses in
proportion has a thousandth of the rounding. The value is ours."""
MAP_OF_ZERO_UNITS = 64
"""A linear map is zero at zero, and a rule in which terms cancel leaves their rounding there. It
may leave this many units of rounding of such terms. The value is ours and has no derivation."""
EXTRA_RUNS = 3
"""How far two runs are apart changes from pair to pair, and a `nondet_tol` that is taken from one
pair fails at the next check. A rule that is not repeatable is called this many times more, and the
largest spread is reported. The value is ours and has no derivation."""
REORDERING_UNITS = 1024
"""Another order of additions (atomics, threads, where arrays lie in memory) changes a sum, and a
right backward pass on a GPU would be called random. Up to this many units of rounding of the
largest entry are put down to it; a larger limit takes randomness for atomics. On a CPU `lstsq` of
PyTorch differs by about half the condition number from call to call, mostly 1 to 500 units in
matrices of up to 200 normal numbers a side (1,758 at most). The value is ours."""
REORDERING_PART = 2.0**-10
"""Where terms cancel that are far larger than their sum, another order of additions changes it by
more than `REORDERING_UNITS`. The finding leaves open what makes two runs differ up to this part of
the largest entry. No verdict depends on it. The value is ours and has no derivation."""
RESIDUE_UNITS = 1024
"""What cancels in a derivative of zero may be some hundred times f: a mean of one number less that
number, over its spread, for example. Its residue may be this many units of rounding of f over the
scale of x. The value is ours and has no derivation."""
LEAK_UNITS = 2.0**14
"""The rounding of a backward pass leaves small numbers in entries that f does not read, which are
no leak. A number counts as a derivative only if it stands out by this many units of rounding of f
and of the gradient. The value is ours and has no derivation."""
LEAK_BARS = 8
"""An error bar is exceeded now and then, and a right derivative of zero would be called missing. A
slope counts if it exceeds this many of its error bars. The value is ours and has no derivation."""
SYMMETRIC_RTOL = 1e-6
"""A gradient that is spread over both triangles is a known convention, which the finding should
name. It counts as symmetrised if its triangles differ by no more than this part. No verdict depends
on it. The value is ours and has no derivation."""
MOVE_LENGTHS = (1.0, -1.0, 2.0**-10, 2.0**-20)
"""f may be flat at long moves, where it is saturated, and at short ones, where it is rounded to a
grid, and a right derivative would be called spurious. f has to stand still under moves of all these
lengths, over the scale of x. The values are ours and have no derivation."""
SYMMETRY_LEAVES = 4
"""The symmetry of a second derivative is tried for each input and output, which costs a vjp each.
Above this number all are tried together, where an asymmetry of one leaf may drown in the others.
The value is ours."""

# ---- How much is compared, confirmed and traced

FULL_MODE = 4
"""In a projection one wrong entry has to be searched for. Up to this many real coordinates of
inputs and outputs together `mode="auto"` takes the whole Jacobian, for a handful of evaluations
more, and every wrong entry is named. The value is ours. With 32 in its place 20 cases of the zoo
took twice the evaluations, and no verdict changed."""
FULL_MODE_BY_REFERENCE = 64
"""Where a reference gives the derivative, f itself is not evaluated for it, and a whole Jacobian
costs little. This number stands in for `FULL_MODE` there. The value is ours."""
PATTERNS_ALONE = 4
"""A rule may be wrong where one input has a special value and the others do not. Up to this many
checked inputs each pattern is also applied to every input alone; without a limit the points would
grow with their number. The value is ours."""
SHARED_RANGE = 2.0**10
"""Leaves share a tangent where their entries contribute to the derivative along it alike, up to
this factor, by which the larger ones are scaled down. With a larger factor the scaled sum sinks
towards the rounding of f, and a check of a right derivative takes a ladder of steps; with a smaller
one there are more tangents. The value is ours and has no derivation."""
FEW_LEAVES = 8
"""Up to this many leaves get long differences of affine functions one by one, and undefined
tangents one by one; more of them are taken together. The value changes what a check costs; it is
ours."""
LEAVES_ALONE = 4
"""Gradients of up to this many leaves are asked for one by one, each with an evaluation of its own,
and of more those of each half: a rule that mixes up two of them is found either way, unless both
have even or odd places. The value changes what a check costs; it is ours."""
STRATA = 5
"""Leaves of different magnitudes have this many shared tangents of their own at most. What is
smaller than `SHARED_RANGE` to this power, 1e-15 of the largest, is below the rounding of f. The
value follows from the other and from double precision."""
SHARED_SIGNIFICANT = 1 / 4
"""A deviation along a tangent that n leaves share is significant from this part of that along a
tangent of one leaf, over sqrt(n). With the whole of it an entry that is wrong by 1e-6 in one of two
leaves passes where it fails in a tangent of its own, since leaves are scaled down to the rounding
of f. The value is ours."""
HIDDEN_PART = 1e-5
"""A leaf hides behind others if an error of this part in all of its entries would not show in the
tangent that they share, and an output if an error of this part in it would not. Both are then
compared again with those that hid as well. With a larger value errors of 1e-4 in small leaves pass;
with a smaller one most small leaves are compared twice. The value is ours."""
GROUP_BITS = 8
"""Outputs whose values differ by more bits than this are told apart by one pullback for each group
before a gradient is differentiated again, and weighed where their parts of it differ as much. With
a larger number a second derivative that is wrong hides behind those of larger outputs; a smaller
one costs pullbacks for outputs that are small by chance. The value is ours."""
MOST_GROUPS = 16
"""Outputs that are smaller than the largest by more groups than this, 39 decades, are taken
together, which bounds the pullbacks. The value is ours."""
GROSS_TOLERANCES = 2.0**10
"""A shared tangent that is off by more than this many tolerances after two evaluations is halved at
once, and no tangent is extrapolated from four evaluations then. With a smaller number truncation
halves the tangents of right derivatives; with a larger one a wrong leaf costs ladders on the way to
it. It changes what a check costs and no verdict, and is ours."""
TRUNCATION_ROOM = 64.0
"""A right leaf of a fast function is far off after two evaluations as well, and would be called
wrong beside a wrong one. It counts as wrong at once where it is off by more than this many times
what its second difference says of its truncation. The value is ours."""
GROSS_AFTER_EXTRAPOLATION = 32
"""This number stands in for `GROSS_TOLERANCES` after an extrapolation, which leaves less
truncation. It is ours."""
FEWEST_WEIGHED = 8
"""To find the wrong one of a few leaves by weights takes as many evaluations as to halve them. From
this many leaves on they are weighted. It changes what a check costs and no verdict, and is ours."""
WEIGHED_BARS = 32
"""A deviation that is close to its error bar changes with the weights of the leaves by less than
that bar, and the evaluations for it show nothing. Leaves are weighted where the deviation exceeds
this many bars, and halved below. It changes what a check costs and no verdict, and is ours."""
FAR_LARGER = 4
"""Where truncation or noise makes a deviation, halves of the leaves have about as much of it each,
and to go on with one of them would not find a wrong leaf. One half has to have this many times the
deviation of the other. It changes what a check costs and no verdict, and is ours."""
GROSS_AFTER_LADDER = 4
"""This number stands in for `GROSS_TOLERANCES` after a ladder of steps. With a smaller one a bar
that is narrow by chance halves the tangents of right derivatives; with a larger one a wrong leaf
costs a second ladder and the noise of f on the way to it. It is ours."""
SEPARATIONS = 3
"""A wrong sign of an entry that is too small to show among larger ones passes. Such entries are
compared by themselves, up to this many times, each time without those that showed. The gradient of
`sqrt` at inputs from 1e-12 to 40 takes these; the value is ours. With 24 in its place 34 cases of
the zoo took 9 to 16 % more evaluations, and no verdict changed."""
FRESH_STEPS = (1.41, 5.87)
"""Two evaluations do not show how far off they are. A disagreement is looked at again at these
multiples of the step, which are no ratios of small numbers: values that cancel are rounded to a
lattice, and over steps that are multiples of one length that rounding may grow as a slope does. The
values are ours. With 1.5 and 6 in their place a right rule of `(exp x - 1 - x) / x^2` failed."""
EXACT_FRESH_STEPS = (1.5, 6.0)
"""In narrow dtypes steps have to be exact, and these stand in for `FRESH_STEPS`. The values are
ours."""
BEYOND_DOUBT = 32
"""Two ladders and the noise of f take ninety evaluations, which a plain error does not need. It is
beyond doubt where it exceeds this many times the error bar of three steps. Where noise makes the
gap, the differences at three steps agree so well once in 10^5 times or less. The value is ours."""
PLAIN_TOLERANCES = 16
"""Most right derivatives that two evaluations leave in doubt are off by little, and three steps
would be taken for nothing. They are taken where an entry is off by this many tolerances. It changes
what a check costs and no verdict, and is ours."""
PLAIN_TRUNCATION = 8
"""Where extrapolation takes away much of a difference, what it leaves is not well known. The error
bar of three steps is at least one part in so many of that. The value is ours."""
LADDER_COLUMNS = 32
"""A wrong rule would cost two ladders for every column of a large input, although the verdict
stands. After this many columns with a disagreement, or as many with a doubt, the rest are judged by
their two evaluations. The value is ours."""
ROOM_FOR_LAYOUTS = 64
"""A small budget would be spent on the memory layout of cotangents before anything is compared.
With this many evaluations left the layouts come first. The value is ours: it is two ladders and
more."""
CONFIRMING_EVALUATIONS = 16
"""A suspicion that cannot be confirmed within the budget would spend it for nothing. So many
evaluations, those of the ladders, must be left before it is followed. The value is that of one
ladder in float64."""
TRACED_PROJECTIONS = 4
"""A rule that is wrong in all leaves fails in every projection, and each would be traced. This many
projections of a mode are, the first or the most significant ones. The value is ours."""

# ---- Which entries, and which mistake

SIGNIFICANT_BARS = 4.0
"""Some of many differences exceed their error bar, and a search that follows such a residual tests
right candidates. A residual is significant beyond this many error bars. The value is ours and has
no derivation."""
PATTERN_EVIDENCE = 3.0
"""Of many patterns one fits wrong numbers by accident, and would be named as the mistake. A pattern
is claimed from this many decades of evidence on, so that accident meets its numbers less than once
in a thousand times. No verdict depends on it. The value is ours."""
PLACE_EVIDENCE = 2.0
"""Wrong entries that are strewn at random fill a row or a block now and then. A place is named from
this many decades on, so that accident does so less than once in a hundred times. No verdict depends
on it. The value is ours."""
MOST_EVIDENCE = 1e16
"""A single entry that fits exactly, as a zero does, would outweigh all others. One number that fits
is evidence of no more than this, the inverse of the rounding of float64."""

# ---- Coordinates of constraint sets

CHART_RADIUS = 2.0**-4
"""Far from an orthogonal matrix `POLAR_STEPS` steps do not reach the polar factor to rounding, and
a step could take a positive number to zero, where functions such as the logarithm are not defined.
Coordinates go no further than this from the matrix, in the Frobenius norm, and a positive number
keeps at least this part of itself. The value is ours."""
POLAR_STEPS = 4
"""With fewer steps of the Newton-Schulz iteration for the polar factor the points would be off the
set by more than rounding. It converges quadratically: the error is `CHART_RADIUS` at first, then
`3/2 CHART_RADIUS^2`, 5e-5, 4e-9 and 3e-17, which is below the rounding of float64. The iteration is
standard; the fixed number of steps is ours."""
OFF_SET_UNITS = 32
"""A point that is in its set up to rounding would be refused. It may be off by this many units of
rounding, times the root of the number of terms that are added. That growth is standard for
independent rounding errors; the value is ours."""
MOST_OFF_SET = 0.05
"""In sixteen bits the units of rounding alone would let points pass that are far off their set. A
point may be off by no more than this in any dtype. The value is ours and has no derivation."""
TIED_STEPS = 16
"""Half of the gap between two sorted entries has to leave room for the steps of differences. Two
entries that are closer than this many steps are tied, and move together. The value is ours and has
no derivation."""
TIED_UNITS = 64
"""In a small gap rounding could change the order of two sorted entries. An entry moves towards one
that it is tied to only if they are more than this many spacings of x apart. The value is ours and
has no derivation."""

# ---- Which rule is at fault

CONTRIBUTION_BARS = 4.0
"""Of thousands of steps some differ from their slope by more than the error bar of the slope, and
would be judged, or accused, for it. A contribution is zero up to this many error bars. The value is
ours, that of `SIGNIFICANT_BARS`."""
CONTRIBUTION_PART = 1e-8
"""An error bar that is too small by chance would let a right rule stand out. A contribution is zero
up to this part of the numbers that it is a difference of. Differences that are extrapolated once
are good to about `eps^(4/5)`, 3e-13, and rules are wrong by 1e-3 rather than by 1e-8; the value is
ours and lies between these."""
CONTRIBUTION_UNITS = 8.0
"""The rounding of a step may be more than that of its results, since it is computed from larger
numbers. So many units of rounding of its operands and results are allowed. The value is ours."""
BLAMED_PART = 0.1
"""Beside wide error bars any rule would explain any failure. Whether one does is said only where
the bars are no more than this part of the error. The value is ours."""

# ---- Exact replay

TRANSLATION_UNITS = 64
"""A wrong translation of an operation would have the derivative of another function proved. The
result that was recorded may differ from the replay of the operation by what so many spacings of its
operands and of itself make. The functions of engines are good to a few; the value is ours, and what
is less exact is not replayed."""
TRANSLATION_BITS = 64
"""With the 53 bits of float64 the rounding of the balls would add to that of the engine. Bits of
the balls in which translations are asked about; the value is ours, a few more than that."""
EXACT_BITS = 128
"""A replay whose balls cancel is begun again. Bits of the balls that it begins with: twice those of
float64, so that half may cancel. The value is ours."""
MOST_EXACT_BITS = 2048
"""What is zero and not exactly so would be replayed for ever. Bits of the balls from which a replay
is not repeated with more. `1 - tanh(x)^2` takes as many at 700; the value is ours."""
KINK_SHRINKING = 2.0**-64
"""The hull of the two branches at a kink would be taken for rounding, and replayed for ever. A ball
that came from rounding is so much narrower at least where four times as many bits are taken; the
value is ours, half of the 128 that the replay begins with."""
EXACT_WORK = 10**7
"""A replay of more operations on numbers would take more than half a minute for each tangent, at
some 400,000 a second. The value is ours."""
KEPT_REPLAYS = 28
"""Eight wrong outputs of one column, named one by one, would take a replay of it at x, fourteen at
the points of `SCATTER_POWERS`, four where the column is moved farther, eight where all of x is, and
one with roundings. So many of the latest replays are kept. The value is ours, the sum of these."""
UNASKED_EXACT_WORK = 30_000
"""A check that is left open would take minutes more where f is replayed in balls without being
asked. So many operations on numbers take about a tenth of a second for each tangent. The value is
ours."""
UNASKED_GRADIENT_WORK = 100_000
"""This number stands in for `UNASKED_EXACT_WORK` along a gradient, which takes as long as six
replays, and more where matrices are carried back entry by entry. So many operations take about a
tenth of a second. The value is ours."""
LONG_REPLAY_WORK = 10**6
"""Where a column would be left open, or fail by no more than saturation explains, f or the rules of
its derivative are replayed with so many operations on numbers, which take some seconds. Of a layer
of 1,000 numbers the right rule failed with fewer. The value is ours."""
LONG_REPLAYS = 1
"""So many open columns of a table are replayed so long. A check that stays open all the same would
take minutes without this. The value is ours."""
BRANCH_ROOM = 2.0**-10
"""A step of a replay (`sign`, `floor`, the smaller of two numbers) has gone where it was recorded
to go if its result is within this part of that. Without it `sign(x)` of a number that was rounded
to zero counted as rounding of the sign. The value is ours."""
EXACT_GRADIENT_WORK = 10**6
"""Beside an exact reference every entry of a gradient is looked at, also of those that are compared
along random directions. Such a gradient may take so many operations on numbers, about a second. The
value is ours."""
DOUBTED_ENTRIES = 2
"""An error may be in many entries of a gradient, and each takes a replay and evaluations. So many
of one row are compared by themselves, those that are off the most. The value is ours."""
NARROW_EXACT_WORK = 60_000
"""A derivative in a narrow dtype is compared with exact gradients at some twenty points, and at 64
more where it is off at x. A gradient may take so many operations on numbers, some 20 to 100 ms. The
value is ours."""
OPEN_NARROW_FACTOR = 10
"""A relu of 2500 numbers in float16 stays open by differences, any step of which takes some of them
across the kink. Where f runs in no wider dtype and is left open, it and its gradient may take this
many times as much work, some seconds. The value is ours."""
KNOWN_PART = 2.0**-40
"""The middle between the derivatives of two branches would count as a derivative. An entry of an
exact gradient counts that is known to this part of itself, far beyond the digits of float32. The
value is ours."""
CANCELLED_PART = 2.0**-128
"""Where terms cancel, 256 bits leave about so small a part of the largest entry of a gradient. What
is smaller counts as zero. The value is ours."""
ROUNDING_UNITS = 64
"""A right derivative would fail by its own rounding. So many spacings may each operation of a
program be off by, its derivatives as well, for a disagreement to count as proved; the functions of
engines are good to a few. The value is ours, that of `TRANSLATION_UNITS`."""
SURE_UNITS = 4
"""A rule with an `eps` of 1e-16 in it, which floating point absorbs, would be called another
formula. Rules are wrong whatever rounding does from so many spacings of each of their operations
on, and of the values of f over the scale of x; the value is ours."""
UNSATURATED = 1 / 256
"""What a rule computes where the engine records nothing is the same beside x where it saturates. At
this part of x, `tanh` of numbers up to a thousand is another number; the value is ours."""
LIKELY_UNITS = 1
"""Beside an exact reference an engine's own rounding would fail where a formula cancels, and the
bound that proves an error would hide small ones. So many spacings of each operation are left open
there; the value is ours, what the functions of engines are usually good to."""
NEAR_ROUNDING = 2.0**20
"""A disagreement that no rounding could make needs no replay. One of up to so many units of
rounding of f over the scale of x may be such, and one that is within the widest bar that decides
anything. The value is ours."""
ENCLOSURE_BITS = 30
"""The hull of two branches would be printed as if it were a number. An interval is told in digits
where so many bits of its middle are certain; the value is ours."""
ENCLOSURE_DIGITS = 50
"""Thousands of digits help nobody. So many are kept of an interval in a report; the value is
ours."""
EXACT_UNITS = 32
"""Rounding of the automatic derivative would fail beside an exact one. So many units of rounding
are allowed, of the derivative and, within the usual tolerance, of what f varies by over the scale
of x: `1 - tanh(x)^2` is computed from values near 1. More is allowed only where the derivative
scatters by as much beside x. The value is ours; with 16, and without the second part, four of 83
right primitives of JAX failed."""
