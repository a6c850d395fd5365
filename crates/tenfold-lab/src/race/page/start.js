// Draws the page. One part that fails must not cost the others.
for (const part of [theme, about, verdict, equal, curves, heatMaps, speeds, absent, how]) {
  try {
    part();
  } catch (error) {
    errors.push(`${part.name}: ${error}`);
    document.documentElement.dataset.errors = errors.join(' | ');
  }
}
fits();
document.documentElement.dataset.done = 'yes';
