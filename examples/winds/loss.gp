# The loss of a training run as a PNG.
#   gnuplot -e "data='loss.dat'; out='loss.png'" loss.gp
# data: columns  step  loss  smoothed_loss  learning_rate ; lines that begin with # are comments.
if (!exists("data")) data = 'loss.dat'
if (!exists("out")) out = 'loss.png'
if (!exists("name")) name = 'Training loss'

set terminal pngcairo size 1200,640 enhanced font 'sans,15' background rgb 'white'
set output out
set border 3 lw 1.2 lc rgb '#444444'
set tics nomirror out textcolor rgb '#444444'
set grid ytics lw 1 lc rgb '#e4e4e4'
set lmargin 11
set rmargin 12
set title name font 'sans,18' textcolor rgb '#222222'
set xlabel 'step'
set ylabel 'mean squared error (in squared deviations)'
set y2label 'learning rate'
set y2tics out textcolor rgb '#999999' format '%g'
set y2range [0:*]
set border 11
set key top right Left reverse samplen 2 spacing 1.3
set xrange [0:*]

plot data using 1:4 axes x1y2 with lines lw 1.5 dt 2 lc rgb '#b0b0b0' title 'learning rate (right axis)', \
     data using 1:2 with lines lw 1 lc rgb '#9ec5e8' title 'loss of the batch', \
     data using 1:3 with lines lw 3 lc rgb '#1f5a99' title 'smoothed'
