"""Reference values of the von Mises-Fisher log-normaliser, its Bessel ratio and that ratio's derivative.

Run from the repository root:  python tools/oracle/vmf_reference.py
Needs: mpmath. Writes crates/vmf/tests/fixtures/reference.txt (one line: p, kappa, log C_p, A_p, dA_p/dkappa).

The method shares nothing with the crate's. C_p(kappa) = C_p(0) / F(p/2, kappa^2/4) with the all-positive series
F(b, z) = sum_k z^k / (k! (b)_k), summed outwards from its largest term at 60 digits; then
A_p = (kappa/p) F(p/2+1, z) / F(p/2, z), and A_p' from its differential equation. Small cases are checked against
mpmath's own Bessel function on the way.
"""

from pathlib import Path

from mpmath import besseli, floor, log, loggamma, mp, mpf, nstr, pi, sqrt

mp.dps = 60

DIMENSIONS = [2, 3, 4, 5, 7, 16, 31, 64, 81, 83, 255, 256, 4096, 100000]
KAPPAS = [0.0, 1e-6, 0.03, 1.0, 7.5, 20.0, 39.0, 41.0, 130.0, 1e3, 2e4, 1e6]
# Around the zero of log C_p its terms cancel; these dimensions get the double nearest to it as an extra kappa.
ZERO_CROSSINGS = {31: 15, 256: 593, 4096: 3e4, 100000: 1e6}


def log_series(b, z):
    """log F(b, z), by its terms from the largest one outwards."""
    peak = int(floor(max(0, (sqrt(b * b + 4 * z) - b) / 2)))
    total, tiny = mpf(1), mpf(10) ** (-mp.dps - 5)
    term, k = mpf(1), peak
    while term > tiny:
        k += 1
        term *= z / (k * (b + k - 1))
        total += term
    term, k = mpf(1), peak
    while k > 0 and term > tiny:
        term *= k * (b + k - 1) / z
        total += term
        k -= 1
    largest = -loggamma(peak + 1) - loggamma(b + peak) + loggamma(b)
    if peak:
        largest += peak * log(z)
    return largest + log(total)


def reference(p, kappa):
    p, kappa = mpf(p), mpf(kappa)
    z, b = kappa * kappa / 4, p / 2
    f = log_series(b, z)
    log_c = loggamma(b) - log(2) - b * log(pi) - f
    if kappa == 0:
        return log_c, mpf(0), 1 / p
    a = kappa / p * mp.exp(log_series(b + 1, z) - f)
    return log_c, a, 1 - a * a - (p - 1) / kappa * a


def check_against_bessel(p, kappa):
    nu, k = mpf(p) / 2 - 1, mpf(kappa)
    log_c, a, _ = reference(p, kappa)
    assert abs(log_c - (nu * log(k) - (nu + 1) * log(2 * pi) - log(besseli(nu, k)))) < mpf(10) ** -50
    assert abs(a - besseli(nu + 1, k) / besseli(nu, k)) < mpf(10) ** -50


def main():
    for p in [2, 3, 16, 256]:
        for kappa in [0.03, 7.5, 130.0]:
            check_against_bessel(p, kappa)
    lines = ["# p kappa log_C A dA; made by tools/oracle/vmf_reference.py"]
    for p in DIMENSIONS:
        kappas = list(KAPPAS)
        if p in ZERO_CROSSINGS:
            kappa = mpf(ZERO_CROSSINGS[p])
            for _ in range(60):
                value, slope, _ = reference(p, kappa)
                step = value / slope
                kappa += step
                if abs(step) < mpf(10) ** -25 * kappa:
                    break
            kappas.append(float(kappa))
        for kappa in kappas:
            values = " ".join(nstr(v, 19) for v in reference(p, kappa))
            lines.append(f"{p} {kappa!r} {values}")
    out = Path(__file__).resolve().parents[2] / "crates/vmf/tests/fixtures/reference.txt"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n".join(lines) + "\n")
    print(f"{out.name}: {len(lines) - 1} rows")


if __name__ == "__main__":
    main()
